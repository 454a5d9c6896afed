"""The records of a batch, written column by column.

Its messages share queue, times and hosts, and often the lengths of body and properties, too: what
all records have in common is packed once.
"""

from collections.abc import Sequence
from functools import lru_cache
from itertools import accumulate, repeat
from struct import Struct
from zlib import crc32

from downrange.protocol.batch import BatchColumns
from downrange.protocol.record import CRC_MASK, HEAD_START

LENGTH_BYTES = 2  # of the properties' length
_pack_start = HEAD_START.pack
_pack_size_and_magic = Struct(">ii").pack
_pack_body_length = Struct(">i").pack
_pack_length = Struct(">H").pack
_PARTS = 7  # of a record: start, middle, body length, body, topic, properties length, properties


class RecordColumns:
    """What the messages of a batch hold, how long their records are, and where these will stand.

    `fixed_bytes` is what a record has beside body and properties.
    """

    __slots__ = (
        "_bodies",
        "_body_lengths",
        "_flags",
        "_is_alike",
        "_text_lengths",
        "sizes",
        "texts",
    )

    def __init__(self, columns: BatchColumns, fixed_bytes: int) -> None:
        self._flags, self._bodies, self.texts = columns
        self._body_lengths = bodies = [*map(len, self._bodies)]
        self._text_lengths = texts = [*map(len, self.texts)]
        count = len(bodies)
        self._is_alike = bodies.count(bodies[0]) == count == texts.count(texts[0])
        self.sizes = (
            [fixed_bytes + bodies[0] + texts[0]] * count
            if self._is_alike
            else [fixed_bytes + body + text for body, text in zip(bodies, texts, strict=True)]
        )

    def offsets_from(self, physical_offset: int) -> Sequence[int]:
        """Where the records stand if the first one stands there."""
        if self._is_alike:
            size = self.sizes[0]
            return range(physical_offset, physical_offset + size * len(self.sizes), size)
        return list(accumulate(self.sizes[:-1], initial=physical_offset))

    def pack(
        self,
        magic: int,
        topic: bytes,
        queue_id: int,
        queue_offsets: Sequence[int],
        physical_offsets: Sequence[int],
        middle: bytes,
    ) -> bytes:
        """The records; `topic` has its length before it, `middle` is that of a record's head."""
        crcs = [crc32(body) & CRC_MASK for body in self._bodies]
        if self._is_alike:
            body_length, text_length = self._body_lengths[0], self._text_lengths[0]
            middle += _pack_body_length(body_length)
            topic += _pack_length(text_length)
            layout = _layout(len(middle), body_length, len(topic), text_length)
            return b"".join(
                map(
                    layout.pack, repeat(_pack_size_and_magic(self.sizes[0], magic)), crcs,
                    repeat(queue_id), self._flags, queue_offsets, physical_offsets, repeat(middle),
                    self._bodies, repeat(topic), self.texts,
                )
            )  # fmt: skip
        count = len(crcs)
        parts = [middle] * (_PARTS * count)
        parts[0::_PARTS] = map(
            _pack_start, self.sizes, repeat(magic), crcs, repeat(queue_id), self._flags,
            queue_offsets, physical_offsets,
        )  # fmt: skip
        parts[2::_PARTS] = map(_pack_body_length, self._body_lengths)
        parts[3::_PARTS] = self._bodies
        parts[4::_PARTS] = [topic] * count
        parts[5::_PARTS] = map(_pack_length, self._text_lengths)
        parts[6::_PARTS] = self.texts
        return b"".join(parts)


@lru_cache(maxsize=256)
def _layout(middle: int, body: int, topic: int, text: int) -> Struct:
    """A record of pieces that are so long, in the order in which `RecordColumns.pack` has them."""
    return Struct(f">8siiiqq{middle}s{body}s{topic}s{text}s")
