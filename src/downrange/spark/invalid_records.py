"""Records whose bodies cannot be decoded: an error, or a null body and the reason."""

from enum import StrEnum
from typing import Final

from downrange.protocol.compression import decompress_by_flag
from downrange.protocol.errors import ProtocolError, RemoteProtocolError

OPTION: Final = "invalidMessages"
# Bodies of one Arrow batch together; a few kilobytes from a broker may expand a thousandfold.
INFLATED_BYTES_MAX: Final = 256 * 1024 * 1024


class InvalidMessages(StrEnum):
    """What becomes of a message that cannot be decoded; the values of option `invalidMessages`."""

    FAIL = "fail"
    NULL = "null"


class InvalidRecordError(RemoteProtocolError):
    """A record that can be read and whose body cannot be decoded."""

    def __init__(self, queue_offset: int, reason: str) -> None:
        super().__init__(reason)
        self.queue_offset = queue_offset


class InflatedTooMuchError(Exception):
    """The bodies of a batch are too large together; decode its records in smaller parts."""


class BodyDecoding:
    """Decompresses the bodies of one batch, and remembers why some could not be.

    `reasons` has the rows of invalid records. In FAIL mode the first one raises instead.
    """

    def __init__(self, mode: InvalidMessages, *, is_single: bool) -> None:
        self._mode = mode
        self._is_single = is_single  # one record is decoded however large it is, within its limit
        self._inflated_bytes = 0
        self.reasons: dict[int, str] = {}

    def reject(self, row: int, queue_offset: int, reason: str) -> None:
        """The record of this row is invalid."""
        if self._mode is InvalidMessages.FAIL:
            raise InvalidRecordError(queue_offset, reason)
        self.reasons[row] = reason

    def decompress(self, body: bytes, sys_flag: int) -> bytes:
        """The body; `ProtocolError` if it cannot be decompressed."""
        unpacked = decompress_by_flag(body, sys_flag)
        self._inflated_bytes += len(unpacked)
        if self._inflated_bytes > INFLATED_BYTES_MAX and not self._is_single:
            raise InflatedTooMuchError
        return unpacked

    def body(self, row: int, queue_offset: int, body: bytes, sys_flag: int) -> bytes | None:
        """The body of a row; None if it is invalid."""
        try:
            return self.decompress(body, sys_flag)
        except ProtocolError as error:
            self.reject(row, queue_offset, str(error))
            return None
