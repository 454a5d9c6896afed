"""One file of the key index: a hash table on disk whose chains run from newest to oldest.

0   begin time       8   store time of the first message, ms
8   end time         8   store time of the last message
16  begin offset     8   physical offset of the first message
24  end offset       8   physical offset of the last message
32  slots in use     4
36  item count       4   one more than there are items: item 0 is never used
40  slots            4 each: number of the newest item of the slot, 0 for none
    items            20 each: key hash 4, physical offset 8, seconds since begin time 4,
                     number of the next older item of the slot 4
"""

from collections.abc import Iterator
from functools import lru_cache
from pathlib import Path
from struct import Struct
from zlib import crc32

from downrange.store.mapped_file import MappedFile
from downrange.store.store_files import StoreFiles

HEADER = Struct(">qqqqii")
SLOT = Struct(">i")
ITEM = Struct(">iqii")
RESERVE_BYTES = 1 << 20
SECONDS_MAX = 0x7FFFFFFF
ITEMS_TOGETHER_MAX = 64

# Key hash, physical offset and store time of a key.
IndexItem = tuple[int, int, int]
_HEADER_BYTES = HEADER.size
_ITEM_BYTES = ITEM.size
_pack_item = ITEM.pack_into
_pack_slot = SLOT.pack_into
_unpack_slot = SLOT.unpack_from


class IndexFile(MappedFile):
    """An index file; one thread writes and reads it, a sync may run in another.

    The header is known whether the file is open or not. Only the newest file is written.
    """

    __slots__ = (
        "_dirty",
        "_items_start",
        "_reserved",
        "_slots",
        "begin_offset",
        "begin_timestamp",
        "count",
        "count_max",
        "end_offset",
        "end_timestamp",
        "slots_used",
    )

    def __init__(
        self, files: StoreFiles, path: Path, slots: int, items: int, *, create: bool
    ) -> None:
        size = index_file_bytes(slots, items)
        super().__init__(files.disk, files.pool, path.parent, path.name, size)
        self._dirty = files.dirty
        self._slots = slots
        self.count_max = items
        self._items_start = HEADER.size + slots * SLOT.size
        files.pool.open(self, create=create)
        if create:
            try:
                # Slots are written all over their area, so all of it must have blocks at once.
                files.disk.allocate(self._descriptor, 0, self._items_start)
            except OSError:
                self.close()
                raise
        header: tuple[int, int, int, int, int, int] = HEADER.unpack_from(self.map, 0)
        self.begin_timestamp, self.end_timestamp = header[0:2]
        self.begin_offset, self.end_offset = header[2:4]
        self.slots_used = header[4]
        self.count = max(header[5], 1)
        self._reserved = self._item_position(self.count) if not create else self._items_start

    @property
    def is_full(self) -> bool:
        """Whether no further key fits."""
        return self.count >= self.count_max

    @property
    def is_sound(self) -> bool:
        """Whether the header can be one: counts within the file, bounds in order."""
        return (
            1 <= self.count <= self.count_max
            and 0 <= self.slots_used < self.count
            and 0 <= self.begin_offset <= self.end_offset
            and 0 <= self.begin_timestamp <= self.end_timestamp
        )

    def begin_behind(self, offset: int, timestamp: int) -> None:
        """Take over the bounds of the file before this one, as RocketMQ does for a new file."""
        self.begin_offset = self.end_offset = offset
        self.begin_timestamp = self.end_timestamp = timestamp
        self._write()
        self._write_header()

    def put(self, key_hash: int, physical_offset: int, store_timestamp: int) -> None:
        """Add a key; the caller has made sure that the file is not full."""
        if not self.is_dirty:
            self._write()
        buffer = self.map
        count = self.count
        slot_position = _HEADER_BYTES + key_hash % self._slots * 4
        (older,) = _unpack_slot(buffer, slot_position)
        seconds = 0
        begin_timestamp = self.begin_timestamp
        if begin_timestamp > 0:
            seconds = (store_timestamp - begin_timestamp) // 1000
            if not 0 <= seconds <= SECONDS_MAX:
                seconds = 0 if seconds < 0 else SECONDS_MAX
        position = self._items_start + count * _ITEM_BYTES
        if position + _ITEM_BYTES > self._reserved:
            self._reserve(position + _ITEM_BYTES)  # may fail, so nothing is counted before
        if not 0 < older < count:
            older = 0
            self.slots_used += 1
        _pack_item(buffer, position, key_hash, physical_offset, seconds, older)
        if count == 1:
            self.begin_offset = physical_offset
            self.begin_timestamp = store_timestamp
        elif store_timestamp < self.end_timestamp:
            store_timestamp = self.end_timestamp  # the clock was set back
        count += 1
        self.count = count
        self.end_offset = physical_offset
        self.end_timestamp = store_timestamp
        self._write_header()
        # The slot comes last: a process killed before it leaves an item that no chain reaches,
        # which recovery takes back, and never a chain that begins at nothing.
        _pack_slot(buffer, slot_position, count - 1)

    def put_all(self, items: list[IndexItem]) -> None:
        """Add keys with one header; they must fit, be few, and not be the file's first."""
        if not self.is_dirty:
            self._write()
        buffer, slots = self.map, self._slots
        count = number = self.count
        assert count > 1
        assert len(items) <= ITEMS_TOGETHER_MAX
        begin_timestamp = self.begin_timestamp
        slots_used = self.slots_used
        position = self._items_start + count * _ITEM_BYTES
        if position + _ITEM_BYTES * len(items) > self._reserved:
            self._reserve(position + _ITEM_BYTES * len(items))
        heads: dict[int, int] = {}  # slot position -> its newest item
        fields: list[int] = []
        seconds_of = seconds = 0
        for key_hash, physical_offset, store_timestamp in items:
            slot_position = _HEADER_BYTES + key_hash % slots * 4
            older = heads.get(slot_position)
            if older is None:
                (older,) = _unpack_slot(buffer, slot_position)
                if not 0 < older < count:
                    older = 0
                    slots_used += 1
            if store_timestamp != seconds_of:  # most have the time of the one before
                seconds_of = store_timestamp
                seconds = (store_timestamp - begin_timestamp) // 1000
                if not 0 <= seconds <= SECONDS_MAX or begin_timestamp <= 0:
                    seconds = 0 if seconds < 0 or begin_timestamp <= 0 else SECONDS_MAX
            fields += (key_hash, physical_offset, seconds, older)
            heads[slot_position] = number
            number += 1
        _items(len(items)).pack_into(buffer, position, *fields)
        self.slots_used = slots_used
        self.count = number
        _, self.end_offset, store_timestamp = items[-1]
        # The clock may have been set back.
        self.end_timestamp = max(store_timestamp, self.end_timestamp)
        self._write_header()
        for slot_position, newest in heads.items():  # last, as in `put`
            _pack_slot(buffer, slot_position, newest)

    def unsure_offset(self) -> int:
        """The physical offset of the oldest message whose keys a killed process may have put
        without linking them to their slots."""
        if self.count == 1:
            return max(self.end_offset, 0)
        number = max(self.count - ITEMS_TOGETHER_MAX, 1)
        self.open()
        _, offset, _, _ = ITEM.unpack_from(self.map, self._item_position(number))
        return max(min(int(offset), self.end_offset), 0)

    def overlaps(self, begin_ms: int, end_ms: int) -> bool:
        """Whether a message between these times can be in this file."""
        return begin_ms <= self.end_timestamp and end_ms >= self.begin_timestamp

    def find(self, key_hash: int, begin_ms: int, end_ms: int) -> Iterator[int]:
        """Physical offsets of messages whose key has this hash, newest first.

        Times are kept in whole seconds, so a message up to a second outside may be among them.
        """
        self.open()
        (number,) = SLOT.unpack_from(self.map, HEADER.size + key_hash % self._slots * SLOT.size)
        previous = self.count
        # Chains lead to ever smaller numbers; a damaged one that does not is left at once.
        while 0 < number < previous:
            item_hash, physical_offset, seconds, older = ITEM.unpack_from(
                self.map, self._item_position(number)
            )
            stored_ms = self._stored_ms(number, seconds)
            if stored_ms + 1000 <= begin_ms:
                return
            if item_hash == key_hash and stored_ms <= end_ms:
                yield physical_offset
            previous, number = number, older

    def reachable(self) -> Iterator[tuple[int, int]]:
        """Key hash and physical offset of everything that a look-up can find."""
        self.open()
        for slot in range(self._slots):
            (number,) = SLOT.unpack_from(self.map, HEADER.size + slot * SLOT.size)
            previous = self.count
            while 0 < number < previous:
                key_hash, physical_offset, _, older = ITEM.unpack_from(
                    self.map, self._item_position(number)
                )
                if key_hash % self._slots == slot:
                    yield key_hash, physical_offset
                previous, number = number, older

    def cut(self, physical_end: int) -> int:
        """Take back the keys of messages at or behind `physical_end`; returns how many."""
        taken_back = 0
        self.open()
        while self.count > 1:
            number = self.count - 1
            key_hash, physical_offset, _, older = ITEM.unpack_from(
                self.map, self._item_position(number)
            )
            if physical_offset < physical_end:
                break
            if not self.is_dirty:
                self._write()
            slot = abs(key_hash) % self._slots
            slot_position = HEADER.size + slot * SLOT.size
            (newest,) = SLOT.unpack_from(self.map, slot_position)
            # One that is not of this slot was written in part by a process that was killed.
            if newest == number or (
                not self._is_in_slot(newest, slot) and (not older or self._is_in_slot(older, slot))
            ):
                SLOT.pack_into(self.map, slot_position, older)
            self.slots_used = max(self.slots_used - (not older), 0)
            ITEM.pack_into(self.map, self._item_position(number), 0, 0, 0, 0)
            self.count = number
            taken_back += 1
        if taken_back:
            self._follow_last_item()
            self._write_header()
        return taken_back

    def _is_in_slot(self, number: int, slot: int) -> bool:
        """Whether an item's key belongs to a slot."""
        if not 0 < number < self.count:
            return False
        key_hash = ITEM.unpack_from(self.map, self._item_position(number))[0]
        return bool(abs(key_hash) % self._slots == slot)

    def checksum(self) -> int:
        """CRC32 of everything that is in use."""
        self.open()
        with memoryview(self.map) as view, view[: self._item_position(self.count)] as used:
            return crc32(used)

    def _stored_ms(self, number: int, seconds: int) -> int:
        # The first item's seconds count from the end of the file before, as in RocketMQ.
        return self.begin_timestamp + (seconds * 1000 if number > 1 else 0)

    def _item_position(self, number: int) -> int:
        return self._items_start + number * ITEM.size

    def _follow_last_item(self) -> None:
        if self.count == 1:
            self.end_offset = self.begin_offset
            self.end_timestamp = self.begin_timestamp
            return
        _, self.end_offset, seconds, _ = ITEM.unpack_from(
            self.map, self._item_position(self.count - 1)
        )
        self.end_timestamp = self._stored_ms(self.count - 1, seconds)

    def _reserve(self, end: int) -> None:
        target = min(self.size, end + RESERVE_BYTES)
        self._disk.allocate(self._descriptor, self._reserved, target - self._reserved)
        self._reserved = target

    def _write(self) -> None:
        """Have the file open and synced with the next flush: it is written now."""
        self.open()
        self._dirty.note(self)

    def _write_header(self) -> None:
        # Copied in one piece: `pack_into` writes byte after byte, and half a count, left by a
        # process that is killed, would hide keys that were put long ago.
        self.map[:_HEADER_BYTES] = HEADER.pack(
            self.begin_timestamp,
            self.end_timestamp,
            self.begin_offset,
            self.end_offset,
            self.slots_used,
            self.count,
        )


@lru_cache(maxsize=ITEMS_TOGETHER_MAX)
def _items(count: int) -> Struct:
    """Items side by side."""
    return Struct(">" + ITEM.format.removeprefix(">") * count)


def index_file_bytes(slots: int, items: int) -> int:
    """Length of an index file."""
    return HEADER.size + slots * SLOT.size + items * ITEM.size
