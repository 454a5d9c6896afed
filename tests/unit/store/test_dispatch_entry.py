"""Tag code and keys of a property text, whatever was read before it."""

from hypothesis import given
from hypothesis import strategies as st

from downrange.protocol.delay_levels import DelayLevels
from downrange.protocol.java_hash import java_hash_bytes
from downrange.protocol.properties import find_property, split_key_bytes
from downrange.protocol.sys_flag import TRANSACTION_ROLLBACK
from downrange.store.dispatch_entry import SCHEDULE_TOPIC, EntryReader

STORED_MS = 1_000_000
# Few names and values of few lengths, so that texts of one length often differ in one place only.
NAMES = st.sampled_from([b"UNIQ_KEY", b"TAGS", b"KEYS", b"WAIT", b"DELAY", b"XUNIQ_KEY", b""])
VALUES = st.sampled_from([b"A1", b"B2", b"a b", b"", b"1", b"UNIQ_KEY", b"\xc3\xa9"])
PAIRS = st.tuples(NAMES, st.sampled_from([b"\x01", b"\x01", b"\x01", b""]), VALUES)
TEXTS = st.lists(PAIRS.map(b"".join), max_size=4).map(b"\x02".join)
TOPICS = st.sampled_from(["T", SCHEDULE_TOPIC])
FLAGS = st.sampled_from([0, TRANSACTION_ROLLBACK])


@given(st.lists(st.tuples(TOPICS, FLAGS, TEXTS, st.sampled_from([b"", b"\x02"])), max_size=12))
def test_what_was_read_before_changes_nothing(
    messages: list[tuple[str, int, bytes, bytes]],
) -> None:
    reader = EntryReader(DelayLevels.parse())
    for topic, sys_flag, text, end in messages:
        fresh = EntryReader(DelayLevels.parse())
        expected = fresh.tag_code_and_keys(topic, sys_flag, text + end, STORED_MS)
        assert reader.tag_code_and_keys(topic, sys_flag, text + end, STORED_MS) == expected


@given(TOPICS, FLAGS, st.lists(TEXTS, max_size=12))
def test_batch_is_read_as_its_messages_are(topic: str, sys_flag: int, texts: list[bytes]) -> None:
    reader = EntryReader(DelayLevels.parse())
    expected = [
        EntryReader(DelayLevels.parse()).tag_code_and_keys(topic, sys_flag, text, STORED_MS)
        for text in texts
    ]
    for _again in range(2):
        codes, keys = reader.of_batch(topic, sys_flag, texts, STORED_MS)
        assert list(zip(codes, keys, strict=True)) == expected


@given(st.lists(TEXTS, max_size=6))
def test_tag_and_keys_are_those_of_the_properties(texts: list[bytes]) -> None:
    """However the text is looked at for speed, the values are those that `find_property` finds."""
    reader = EntryReader(DelayLevels.parse())
    for text in texts:
        unique, keys, tag = (find_property(text, name) for name in (b"UNIQ_KEY", b"KEYS", b"TAGS"))
        expected = [unique] if unique is not None else []
        expected += split_key_bytes(keys) if keys is not None else []
        expected += [b"T#" + tag] if tag is not None else []
        code = java_hash_bytes(tag) if tag is not None else 0
        assert reader.tag_code_and_keys("T", 0, text, STORED_MS) == (code, expected)


def test_messages_of_one_producer_differ_in_their_id_only() -> None:
    reader = EntryReader(DelayLevels.parse())
    for number in range(3):
        text = b"TAGS\x01a\x02UNIQ_KEY\x01%032d\x02WAIT\x01true\x02" % number
        assert reader.tag_code_and_keys("T", 0, text, STORED_MS) == (
            97,
            [b"%032d" % number, b"T#a"],
        )
