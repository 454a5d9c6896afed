"""What dispatch needs to know of a record: its tag code, its keys and its place."""

from collections.abc import Sequence

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
_TAGS_MAX = 4096  # distinct tags are few; a producer that invents them costs only time
TAG_KEY_PREFIX = b"T#"
_VALUE_END = 2
_UNIQUE_NAME_BYTES = len(b"UNIQ_KEY\x01")
_RESTS_MAX = 4096
_REST_BYTES_MAX = 1024
_Found = tuple[int, tuple[bytes, ...]]  # tag code and keys
# What stands before and behind the unique id of a text, where the id ends, what was found in both
# parts, and what in the first one.
_Shape = tuple[bytes, bytes, int, _Found, _Found]
_NO_SHAPE: _Shape = (b"\x02", b"\x02", 1, (0, ()), (0, ()))  # nothing has it
# Without these a text has no tag, no keys and no unique id.
_TAGS_OR_KEYS_END = b"S\x01"
_UNIQUE_END = b"Y\x01"

# A record on its way into its consume queue and the key index; a plain tuple, because there is one
# for every message: queue, whether it gets an entry there, queue offset, physical offset, size,
# tag code, store time, keys, properties.
DispatchEntry = tuple[ConsumeQueue, bool, int, int, int, int, int, list[bytes], bytes]


class EntryReader:
    """Reads tag code and keys out of a record's property text."""

    def __init__(self, delay_levels: DelayLevels) -> None:
        self._delay_levels = delay_levels
        # Tag -> its code, and the key under which 5.5.0 indexes it: TOPIC#T#TAG.
        self._tags: dict[bytes, tuple[int, bytes]] = {}
        self._rests: dict[bytes, _Found] = {}
        self._shape = _NO_SHAPE  # of a text of the last batch

    def tag_code_and_keys(
        self, topic: str, sys_flag: int, properties: bytes, store_timestamp: int
    ) -> tuple[int, list[bytes]]:
        """Both at once, for the hot path.

        But for its unique id a producer's messages mostly have the same text, so what is found in
        the rest of it is remembered.
        """
        start, end = _unique_id(properties)
        if start:
            rest = properties[: start - _UNIQUE_NAME_BYTES] + properties[end + 1 :]
            code, more_keys = self._rests.get(rest) or self.tag_and_keys(rest)
            keys = [properties[start:end], *more_keys]
        else:  # none, or in a strange place
            strange_key = find_property(properties, b"UNIQ_KEY")
            code, more_keys = self.tag_and_keys(properties)
            keys = [*more_keys] if strange_key is None else [strange_key, *more_keys]
        if topic == SCHEDULE_TOPIC:
            code = self._deliver_time(properties, store_timestamp) or code
        if sys_flag & TRANSACTION_MASK == TRANSACTION_ROLLBACK:
            return code, []
        return code, keys

    def of_batch(
        self, topic: str, sys_flag: int, texts: Sequence[bytes], store_timestamp: int
    ) -> tuple[list[int], list[list[bytes]]]:
        """Tag codes and keys of the messages of a batch, whose texts mostly have one shape.

        Behind the id there may be something else in each, if it is neither tag nor key.
        """
        before, behind, end, (code, more_keys), (first_code, first_keys) = self._shape
        start = len(before)
        is_usual = topic != SCHEDULE_TOPIC and not sys_flag & TRANSACTION_MASK
        if is_usual and {*map(len, texts)} == {end + len(behind)}:
            # As long as that shape: then one comparison tells whether all of them have it.
            ids = [text[start:end] for text in texts]
            together = b"".join((before, (behind + before).join(ids), behind))
            if together == b"".join(texts) and b"".join(ids).isalnum():
                return [code] * len(ids), [[key, *more_keys] for key in ids]
        codes: list[int] = []
        keys: list[list[bytes]] = []
        for text in texts:
            key = text[start:end]
            # Letters and digits hide no further name or value.
            if text.startswith(before) and key.isalnum() and is_usual:
                rest = text[end:]
                if rest == behind:
                    codes.append(code)
                    keys.append([key, *more_keys])
                    continue
                if (
                    rest[:1] == b"\x02"
                    and _TAGS_OR_KEYS_END not in rest
                    and _UNIQUE_END not in rest
                ):
                    codes.append(first_code)
                    keys.append([key, *first_keys])
                    continue
            found = self.tag_code_and_keys(topic, sys_flag, text, store_timestamp)
            codes.append(found[0])
            keys.append(found[1])
            self._shape = self._shape_of(text)
            before, behind, end, (code, more_keys), (first_code, first_keys) = self._shape
            start = len(before)
        return codes, keys

    def _shape_of(self, text: bytes) -> _Shape:
        start, end = _unique_id(text)
        first = text[: start - _UNIQUE_NAME_BYTES]
        found = self._rests.get(first + text[end + 1 :]) if start else None
        if found is None:  # no id, or keys, which rarely come again
            return _NO_SHAPE
        return text[:start], text[end:], end, found, self.tag_and_keys(first)

    def tag_and_keys(self, text: bytes) -> _Found:
        """Tag code and keys in a text, but for the unique id."""
        keys: list[bytes] = []
        code = 0
        user_keys = _value(text, b"KEYS\x01")
        if user_keys is not None:
            keys += split_key_bytes(user_keys)
        tag = _value(text, b"TAGS\x01")
        if tag is not None:
            code, tag_key = self._tags.get(tag) or self._remember(tag)
            keys.append(tag_key)
        found = (code, tuple(keys))
        if user_keys is None and len(text) <= _REST_BYTES_MAX:  # keys rarely come again
            if len(self._rests) >= _RESTS_MAX:
                self._rests.clear()
            self._rests[text] = found
        return found

    def tag_code(self, topic: str, properties: bytes, store_timestamp: int) -> int:
        """The number that stands for the tag in the consume queue."""
        if topic == SCHEDULE_TOPIC:
            deliver_time = self._deliver_time(properties, store_timestamp)
            if deliver_time:
                return deliver_time
        tag = _value(properties, b"TAGS\x01")
        if tag is None:
            return 0
        return (self._tags.get(tag) or self._remember(tag))[0]

    def keys(self, sys_flag: int, properties: bytes) -> list[bytes]:
        """What the key index holds of this record: the unique id, the user's keys, the tag."""
        return self.tag_code_and_keys("", sys_flag, properties, 0)[1]

    def _deliver_time(self, properties: bytes, store_timestamp: int) -> int:
        """What stands for the tag of a delayed message; 0 if it has no delay."""
        level = find_property(properties, b"DELAY")
        if level is None or not level.isdigit() or int(level) == 0:
            return 0
        clamped = self._delay_levels.clamp(int(level))
        return store_timestamp + self._delay_levels.delay_ms(clamped)

    def _remember(self, tag: bytes) -> tuple[int, bytes]:
        if len(self._tags) >= _TAGS_MAX:
            self._tags.clear()
        found = self._tags[tag] = (java_hash_bytes(tag), TAG_KEY_PREFIX + tag)
        return found


def _unique_id(text: bytes) -> tuple[int, int]:
    """Where the unique id stands; zeros if there is none, or one in a strange place."""
    start = text.rfind(b"UNIQ_KEY\x01")
    end = text.find(b"\x02", start)
    is_plain = start == 0 or (start > 0 and text[start - 1] == _VALUE_END)
    if is_plain and end - start > _UNIQUE_NAME_BYTES:
        return start + _UNIQUE_NAME_BYTES, end
    return 0, 0


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
