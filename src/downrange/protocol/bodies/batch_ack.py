"""Many acknowledgements at once: the body of BATCH_ACK_MESSAGE.

The acknowledged offsets of one pop are a bit set in Base64: bit n of byte m, counted from the
lowest, stands for the start offset + 8 m + n.
"""

import base64
import binascii
from collections.abc import Iterable, Iterator
from typing import Final

import msgspec

from downrange.protocol.bodies.json_body import Body
from downrange.protocol.errors import LocalProtocolError, RemoteProtocolError
from downrange.protocol.integers import Int32, Int64

OFFSET_SPAN_MAX: Final = 1 << 16
"""A pop takes 32 messages at most, so even thin queues stay far below this distance."""


class BatchAck(Body, frozen=True, kw_only=True):
    """Acknowledges messages of one pop; `retry` tells the topic ("0") from retry topics."""

    consumer_group: str = msgspec.field(name="c")
    topic: str = msgspec.field(name="t")
    retry: str | None = msgspec.field(default=None, name="r")
    start_offset: Int64 = msgspec.field(name="so")
    queue_id: Int32 = msgspec.field(name="q")
    revive_queue_id: Int32 = msgspec.field(name="rq")
    pop_time: Int64 = msgspec.field(name="pt")
    invisible_time: Int64 = msgspec.field(name="it")
    bit_set: str = msgspec.field(default="", name="b")

    def offsets(self) -> Iterator[int]:
        """Give the acknowledged queue offsets, ascending."""
        try:
            data = base64.b64decode(self.bit_set, validate=True)
        except (binascii.Error, ValueError) as error:
            raise RemoteProtocolError(f"BatchAck: the bit set is not Base64: {error}") from None
        for index, byte in enumerate(data):
            for bit in range(8):
                if byte >> bit & 1:
                    yield self.start_offset + 8 * index + bit


class BatchAckRequest(Body, frozen=True, kw_only=True):
    """Body of BATCH_ACK_MESSAGE."""

    broker_name: str | None = None
    acks: tuple[BatchAck, ...] = ()


def offset_bits(start_offset: int, offsets: Iterable[int]) -> str:
    """Write acknowledged offsets as the bit set of a `BatchAck`."""
    bits = 0
    for offset in offsets:
        if not 0 <= offset - start_offset < OFFSET_SPAN_MAX:
            raise LocalProtocolError(f"offset {offset} is not near start offset {start_offset}")
        bits |= 1 << (offset - start_offset)
    return base64.b64encode(bits.to_bytes((bits.bit_length() + 7) // 8, "little")).decode()
