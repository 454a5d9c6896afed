"""The answer to a send, written without a detour: it goes out once for every message."""

from collections.abc import Sequence
from struct import Struct, pack

from downrange.broker.message_writer import put_code
from downrange.protocol.command import Command, Serialization, response
from downrange.protocol.command_codec import encode_command
from downrange.protocol.languages import LanguageCode
from downrange.protocol.versions import CURRENT_VERSION
from downrange.store.appended import Appended, AppendedBatch
from downrange.store.errors import PutStatus

_pack_frame_start = Struct(">iI").pack
_JSON = int(Serialization.JSON)
# Length, encoding and header length; code, language, version, opaque, flag, remark, fields.
_BINARY_START = Struct(">iIHbHiiII")
_LENGTH = Struct(">i")
_NAME_LENGTH = Struct(">H")
_LANGUAGE = int(LanguageCode.PYTHON)
_VERSION = CURRENT_VERSION & 0xFFFF


class SendReply:
    """Knows what is the same in every answer of this broker."""

    def __init__(self, store_host: bytes, region: str, *, traces: bool) -> None:
        self._host_hex = store_host.hex().upper().encode()
        self._constant_fields = {"MSG_REGION": region, "TRACE_ON": "true" if traces else "false"}
        trace = b"true" if traces else b"false"
        self._json = self._json_form(b"%b%016X", region, trace)
        self._json_batch = self._json_form(b"%b", region, trace)
        constant = b"".join(
            _NAME_LENGTH.pack(len(name)) + name + _LENGTH.pack(len(value)) + value
            for name, value in ((b"MSG_REGION", region.encode()), (b"TRACE_ON", trace))
        )
        # Lengths stand before what they measure, so the variable ones come as pieces of their own.
        self._binary = (
            b"%b\x00\x05msgId"
            + _LENGTH.pack(len(self._host_hex) + 16)
            + b"%b%016X\x00\x07queueId%b%b\x00\x0bqueueOffset%b%b\x00\x0dtransactionId%b%b"
            + constant.replace(b"%", b"%%")
        )
        self._binary_bytes = (
            len(b"..msgId....") + len(self._host_hex) + 16 + len(b"..queueId....")
            + len(b"..queueOffset....") + len(b"..transactionId....") + len(constant)
        )  # fmt: skip

    @staticmethod
    def _json_form(message_id: bytes, region: str, trace: bytes) -> bytes:
        return (
            b'{"code":0,"extFields":{"MSG_REGION":"'
            + region.encode().replace(b"%", b"%%")
            + b'","TRACE_ON":"'
            + trace
            + b'","msgId":"'
            + message_id
            + b'","queueId":"%d","queueOffset":"%d","transactionId":"%b"},'
            b'"flag":1,"language":"PYTHON","opaque":%d,"serializeTypeCurrentRPC":"JSON","version":'
            + str(CURRENT_VERSION).encode()
            + b"}"
        )

    def now(
        self, encoding: int, opaque: int, appended: Appended, queue_id: int, unique_key: bytes
    ) -> bytes:
        """The frame for one message that was stored."""
        if encoding == _JSON:
            if not unique_key.isalnum():  # it might need an escape
                return self._for_stored(encoding, opaque, [appended], queue_id, unique_key)
            header = self._json % (
                self._host_hex, appended[0], queue_id, appended[2], unique_key, opaque,
            )  # fmt: skip
            return _pack_frame_start(len(header) + 4, len(header)) + header
        queue = b"%d" % queue_id
        offset = b"%d" % appended[2]
        size = self._binary_bytes + len(queue) + len(offset) + len(unique_key)
        start = _BINARY_START.pack(
            size + 25, 1 << 24 | size + 21, 0, _LANGUAGE, _VERSION, opaque, 1, 0, size
        )
        return self._binary % (
            start,
            self._host_hex, appended[0],
            _LENGTH.pack(len(queue)), queue,
            _LENGTH.pack(len(offset)), offset,
            _LENGTH.pack(len(unique_key)), unique_key,
        )  # fmt: skip

    def now_batch(
        self,
        encoding: int,
        opaque: int,
        placed: Sequence[Appended],
        queue_id: int,
        unique_key: bytes,
    ) -> bytes:
        """The frame for the messages of a batch that were stored."""
        if len(placed) == 1:
            return self.now(encoding, opaque, placed[0], queue_id, unique_key)
        if encoding != _JSON or not unique_key.isalnum():
            return self._for_stored(encoding, opaque, placed, queue_id, unique_key)
        ids = self._ids(placed).encode()
        header = self._json_batch % (ids, queue_id, placed[0][2], unique_key, opaque)
        return _pack_frame_start(len(header) + 4, len(header)) + header

    def _ids(self, placed: Sequence[Appended]) -> str:
        """The ids of messages, each the broker's address and a physical offset."""
        host = self._host_hex.decode()
        offsets = (
            placed.physical_offsets
            if isinstance(placed, AppendedBatch)
            else [one.physical_offset for one in placed]
        )
        digits = pack(f">{len(offsets)}q", *offsets).hex(",", 8).upper()
        return host + digits.replace(",", "," + host)

    def _for_stored(
        self,
        encoding: int,
        opaque: int,
        placed: Sequence[Appended],
        queue_id: int,
        unique_key: bytes,
    ) -> bytes:
        request = Command(code=0, opaque=opaque, serialization=Serialization(encoding))
        return self.later(request, PutStatus.PUT_OK, placed, queue_id, unique_key)

    def later(
        self,
        request: Command,
        status: PutStatus,
        placed: Sequence[Appended],
        queue_id: int,
        unique_key: bytes | None,
    ) -> bytes:
        """The frame for messages whose status is known; a batch has one id for each."""
        fields = {
            "msgId": self._ids(placed),
            "queueId": str(queue_id),
            "queueOffset": str(placed[0].queue_offset),
            **self._constant_fields,
        }
        if unique_key is not None:
            fields["transactionId"] = unique_key.decode("utf-8", "replace")
        remark = None
        code = put_code(status)
        if status is PutStatus.NOT_WRITABLE or status is PutStatus.SHUT_DOWN:
            remark = f"service not available now: {status.detail}"
        return encode_command(response(request, code, remark=remark, ext_fields=fields))
