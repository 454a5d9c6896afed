"""Which half messages have a newer copy, where the progress of checks does not say so.

A check puts a copy of the half message at the end of its queue and moves on. A broker that is
killed loses some of that progress, and its successor meets the originals again. If it checked both
the originals and their copies, each kill could double their number; so it looks ahead once, and
passes every half message that has a newer copy.
"""

from zlib import crc32

from downrange.broker.half_messages import HALF_QUEUE, whole_number
from downrange.broker.transaction_ends import Read
from downrange.model.names import HALF_TOPIC
from downrange.protocol.errors import RemoteProtocolError
from downrange.protocol.properties import find_property
from downrange.protocol.record import Record, decode_records

READ_COUNT_MAX = 32
# A half message with one of these was checked, or postponed because its producer wanted peace.
IDENTITIES = (b"UNIQ_KEY", b"TRAN_PREPARED_QUEUE_OFFSET")  # properties that copies share
_COPY_MARKS = (b"TRANSACTION_CHECK_TIMES", b"TRAN_PREPARED_QUEUE_OFFSET")

# Unique key, birth and checksum of the body, or the queue offset of the original.
Identity = tuple[bytes, int, int] | int


class HalfCopies:
    """The newest copy of each half message from an offset on; made once per life of the broker.

    `read_some` looks ahead, in steps, before the first round; `add` follows the copies of this
    life for as long as rounds may meet their originals again.
    """

    def __init__(self, read: Read, start: int, stop: int) -> None:
        self._read = read
        self._next = start
        self._stop = stop
        self._newest: dict[Identity, int] = {}

    @property
    def is_read(self) -> bool:
        """Whether all copies of earlier lives are known."""
        return self._next >= self._stop

    def read_some(self) -> None:
        """Look at some more half messages."""
        result = self._read(HALF_TOPIC, HALF_QUEUE, self._next, READ_COUNT_MAX)
        self._next = result.next_offset if result.next_offset > self._next else self._stop
        for view in result.views:
            try:
                records = decode_records(view)
            except RemoteProtocolError:
                continue  # the round that meets it logs it
            for record in records:
                if any(find_property(record.properties, name) is not None for name in _COPY_MARKS):
                    self.add(record, record.queue_offset)

    def add(self, record: Record, copy_offset: int) -> None:
        """The newest copy of this half message stands at `copy_offset` of the queue."""
        self._newest[identity_of(record)] = copy_offset

    def has_newer(self, record: Record) -> bool:
        """Whether a copy stands behind this one: then this one is done with."""
        return self._newest.get(identity_of(record), -1) > record.queue_offset

    def clear(self) -> None:
        """No round will meet these half messages again."""
        self._newest.clear()


def identity_of(record: Record) -> Identity:
    """What all copies of a half message share.

    Birth and body are part of it, because a producer may use a unique key twice. Without a unique
    key it is the queue offset of the original, which copies name; those of an Apache broker do not.
    """
    key = find_property(record.properties, b"UNIQ_KEY")
    if key is not None:
        return key, record.born_timestamp, crc32(record.body)
    first = whole_number(find_property(record.properties, b"TRAN_PREPARED_QUEUE_OFFSET"))
    return record.queue_offset if first is None else first
