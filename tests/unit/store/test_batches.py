"""A batch is stored as its messages would be one by one, whether they are alike or not."""

from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryDirectory

from hypothesis import example, given, settings
from hypothesis import strategies as st
from unit.store.building import SEGMENT_BYTES, files_of, open_store

from downrange.protocol.batch import BatchMessage, encode_batch
from downrange.protocol.hosts import encode_host
from downrange.store.appended import Appended
from downrange.store.message_store import MessageStore

BORN_HOST = encode_host("10.0.0.1", 5000)
BORN_MS = 123


def together(store: MessageStore, messages: Sequence[BatchMessage]) -> list[Appended]:
    return list(store.append_batch("T", 2, encode_batch(messages), 0, BORN_MS, BORN_HOST))


def one_by_one(store: MessageStore, messages: Sequence[BatchMessage]) -> list[Appended]:
    return [
        store.append("T", 2, body, text, 0, flag, BORN_MS, BORN_HOST)
        for flag, body, text in messages
    ]


def text(number: int, behind: bytes = b"WAIT\x01true\x02") -> bytes:
    return b"TAGS\x01a\x02UNIQ_KEY\x017F0000010BD218B4AAC2%012X\x02" % number + behind


FLAGS = st.integers(-(1 << 31), (1 << 31) - 1)
IDS = st.integers(0, 1 << 20)
ALIKE = st.integers(0, 40).flatmap(
    lambda size: st.lists(
        st.tuples(FLAGS, st.binary(min_size=size, max_size=size), st.builds(text, IDS)),
        min_size=1,
        max_size=12,
    )
)
ENDS = st.sampled_from([b"", b"WAIT\x01true\x02", b"KEYS\x01k1 k2\x02", b"other\x01value1\x02"])
DIFFERENT = st.lists(
    st.tuples(FLAGS, st.binary(max_size=40), st.builds(text, IDS, ENDS)), min_size=1, max_size=12
)


@given(messages=ALIKE | DIFFERENT, host=st.sampled_from(["10.0.0.9", "2001:db8::1"]))
@example([(0, b"a", text(1)), (0, b"b", text(2)[:-1])], "10.0.0.9")
@example([(0, b"a", text(1)), (0, b"b", text(2).replace(b"TAGS", b"TAGX"))], "10.0.0.9")
@example([(0, b"a", text(1)), (0, b"b", text(2).replace(b"\x017F", b"\x01\x02F"))], "10.0.0.9")
@example([(0, b"a", text(1)), (0, b"b", text(2).replace(b"AAC2", b"A\x02\x01\x02"))], "10.0.0.9")
@settings(max_examples=60)  # each opens and closes two stores
def test_a_batch_leaves_the_files_that_single_messages_leave(
    messages: list[BatchMessage], host: str
) -> None:
    results = []
    for put in (together, one_by_one):
        with TemporaryDirectory() as folder:
            root = Path(folder)
            # One file: what does not fit into the last one goes to the next whole.
            store = open_store(
                root, store_host=encode_host(host, 10911), segment_bytes=16 * SEGMENT_BYTES
            )
            # The second batch meets what was remembered of the first.
            places = put(store, messages) + put(store, messages)
            store.dispatch_some()
            store.close()
            results.append((places, files_of(root)))
    assert results[0] == results[1]


def test_where_a_batch_was_put_can_be_asked_of_any_message(store: MessageStore) -> None:
    batch = store.append_batch("T", 0, encode_batch([(0, b"x" * n, b"") for n in range(5)]))
    places = list(batch)
    assert len(batch) == len(places) == 5
    assert batch[-1] == places[4]
    assert batch[1:3] == places[1:3]
    assert list(batch.physical_offsets) == [one.physical_offset for one in places]
    assert batch[-1].end_offset == store.log.max_offset
