"""What dispatch needs to know of a record: its tag code, its keys and its place."""

from downrange.protocol.delay_levels import DelayLevels
from downrange.protocol.java_hash import java_hash_bytes
from downrange.protocol.properties import find_property, split_key_bytes
from downrange.protocol.sys_flag import (
    TRANSACTION_COMMIT,
    TRANSACTION_MASK,
    TRANSACTION_ROLLBACK,
)
from downrange.store.consume_queue import ConsumeQueue

SCHEDULE_TOPIC = "SCHEDULE_TOPIC_XXXX"
_TAG_CODES_MAX = 4096  # distinct tags are few; a producer that invents them costs only time
TAG_KEY_PREFIX = b"T#"
_NO_KEYS: list[bytes] = []
_VALUE_END = 2

# A record on its way into its consume queue and the key index; a plain tuple, because there is one
# for every message: queue, whether it gets an entry there, queue offset, physical offset, size,
# tag code, store time, keys, properties.
DispatchEntry = tuple[ConsumeQueue, bool, int, int, int, int, int, list[bytes], bytes]


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
        tag = _value(properties, b"TAGS\x01")
        if tag is None:
            return 0
        code = self._tag_codes.get(tag)
        if code is None:
            if len(self._tag_codes) >= _TAG_CODES_MAX:
                self._tag_codes.clear()
            code = self._tag_codes[tag] = java_hash_bytes(tag)
        return code

    def keys(self, sys_flag: int, properties: bytes) -> list[bytes]:
        """What the key index holds of this record: the unique id, the user's keys, the tag."""
        if sys_flag & TRANSACTION_MASK == TRANSACTION_ROLLBACK:
            return _NO_KEYS
        unique_key = _value(properties, b"UNIQ_KEY\x01")
        keys = [unique_key] if unique_key is not None else []
        text = _value(properties, b"KEYS\x01")
        if text is not None:
            keys += split_key_bytes(text)
        # 5.5.0 finds messages by tag too, under TOPIC#T#TAG.
        tag = _value(properties, b"TAGS\x01")
        if tag is not None:
            keys.append(TAG_KEY_PREFIX + tag)
        return keys


def _value(properties: bytes, name_with_end: bytes) -> bytes | None:
    """What `find_property` gives, in half the time for the text that clients write."""
    start = properties.rfind(name_with_end)
    if start < 0:
        return None
    if start and properties[start - 1] != _VALUE_END:
        return find_property(properties, name_with_end[:-1])  # the end of another name, or a value
    start += len(name_with_end)
    end = properties.find(b"\x02", start)
    if end == start or end < 0:
        return find_property(properties, name_with_end[:-1])
    return properties[start:end]


def is_queued(sys_flag: int) -> bool:
    """Whether a record gets a consume queue entry: all but PREPARED and ROLLBACK ones."""
    return sys_flag & TRANSACTION_MASK in {0, TRANSACTION_COMMIT}
