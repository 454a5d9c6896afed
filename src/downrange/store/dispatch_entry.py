"""What dispatch needs to know of a record: its tag code, its keys and its place."""

from typing import NamedTuple

from downrange.protocol.delay_levels import DelayLevels
from downrange.protocol.java_hash import java_hash_bytes
from downrange.protocol.properties import find_property, split_key_bytes
from downrange.protocol.sys_flag import TRANSACTION_MASK, TRANSACTION_ROLLBACK
from downrange.store.consume_queue import ConsumeQueue

SCHEDULE_TOPIC = "SCHEDULE_TOPIC_XXXX"
_TAG_CODES_MAX = 4096  # distinct tags are few; a producer that invents them costs only time
_NO_KEYS: list[bytes] = []


class DispatchEntry(NamedTuple):
    """A record on its way into its consume queue and the key index."""

    queue: ConsumeQueue
    queued: bool  # False for PREPARED and ROLLBACK records, which no consumer sees
    queue_offset: int
    physical_offset: int
    size: int
    tag_code: int
    store_timestamp: int
    keys: list[bytes]
    properties: bytes


class EntryReader:
    """Reads tag code and keys out of a record's property text."""

    def __init__(self, delay_levels: DelayLevels) -> None:
        self._delay_levels = delay_levels
        self._tag_codes: dict[bytes, int] = {}

    def tag_code(self, topic: str, properties: bytes, store_timestamp: int) -> int:
        """The number that stands for the tag in the consume queue."""
        if topic == SCHEDULE_TOPIC:
            level = find_property(properties, b"DELAY")
            if level is not None and level.isdigit() and int(level) > 0:
                clamped = self._delay_levels.clamp(int(level))
                return store_timestamp + self._delay_levels.delay_ms(clamped)
        if b"TAGS\x01" not in properties:
            return 0
        tag = find_property(properties, b"TAGS")
        if tag is None:
            return 0
        code = self._tag_codes.get(tag)
        if code is None:
            if len(self._tag_codes) >= _TAG_CODES_MAX:
                self._tag_codes.clear()
            code = self._tag_codes[tag] = java_hash_bytes(tag)
        return code

    def keys(self, sys_flag: int, properties: bytes) -> list[bytes]:
        """What the key index holds of this record: the unique id first, then the user's keys."""
        if sys_flag & TRANSACTION_MASK == TRANSACTION_ROLLBACK:
            return _NO_KEYS
        unique_key = find_property(properties, b"UNIQ_KEY")
        keys = [unique_key] if unique_key is not None else []
        if b"KEYS\x01" in properties:
            text = find_property(properties, b"KEYS")
            if text is not None:
                keys += split_key_bytes(text)
        return keys
