"""The files of the key index together."""

from pathlib import Path

import pytest
from unit.store.building import INDEX_ITEMS, StagedDisk, no_space, small_settings

from downrange.store.key_index import KeyIndex, index_file_name
from downrange.store.message_store import MessageStore
from downrange.store.store_files import StoreFiles
from downrange.testing.clock import ManualClock

PER_FILE = INDEX_ITEMS - 1
START_MS = 1_700_000_000_000
NEVER = 1 << 62


def new_index(disk: StagedDisk, clock: ManualClock, root: Path) -> KeyIndex:
    index = KeyIndex(StoreFiles.of(disk), clock, small_settings(root))
    index.load()
    return index


@pytest.fixture
def index(tmp_path: Path, clock: ManualClock, disk: StagedDisk) -> KeyIndex:
    return new_index(disk, clock, tmp_path)


def fill(index: KeyIndex, clock: ManualClock, count: int) -> None:
    """One key a message, a second apart, 100 bytes apart; every fifth is called "five"."""
    for number in range(count):
        key = b"five" if number % 5 == 0 else b"key%d" % number
        index.put("T", [key], number * 100, clock.wall_ms())
        clock.advance(1000)


def find(index: KeyIndex, key: str, begin_ms: int = 0, end_ms: int = NEVER) -> list[int]:
    return index.find("T", key, begin_ms, end_ms, 64)


def test_keys_belong_to_their_topic(index: KeyIndex) -> None:
    index.put("T", [b"a", b"b"], 100, START_MS)
    index.put("U", [b"a"], 200, START_MS)
    assert find(index, "a") == [100]
    assert find(index, "b") == [100]
    assert index.find("U", "a", 0, NEVER, 64) == [200]
    assert index.find("V", "a", 0, NEVER, 64) == []


def test_keys_of_a_batch_are_found_by_what_they_say(store: MessageStore) -> None:
    keys = ["7F000001" * 4, "O" * 32, "A-" * 16, "a" * 32, "order", "7F000001" * 7]
    places: list[tuple[str, str, int]] = []
    for number, key in enumerate(keys):
        text = f"KEYS\x01{key}\x02TAGS\x01{number}\x02".encode()
        for topic in ("T", "U"):
            offset = store.append(topic, 0, b"", text).physical_offset
            places += ((topic, key, offset), (topic, f"T#{number}", offset))
    store.dispatch_some()
    assert store.index is not None
    for topic, key, offset in places:
        assert store.index.find(topic, key, 0, NEVER, 64) == [offset]


def test_full_file_is_followed_by_one_with_its_bounds(index: KeyIndex, clock: ManualClock) -> None:
    fill(index, clock, PER_FILE)
    assert len(index.files) == 1
    fill_end = index.files[0].end_timestamp
    clock.advance(60_000)
    index._roll()
    fresh = index.files[1]
    assert (fresh.begin_offset, fresh.end_offset) == ((PER_FILE - 1) * 100,) * 2
    assert (fresh.begin_timestamp, fresh.end_timestamp) == (fill_end, fill_end)


def test_key_is_found_in_all_files_newest_first(index: KeyIndex, clock: ManualClock) -> None:
    fill(index, clock, 3 * PER_FILE + 1)
    assert len(index.files) == 4
    assert find(index, "five") == [number * 100 for number in range(60, -1, -5)]
    assert index.find("T", "five", 0, NEVER, 3) == [6000, 5500, 5000]


def test_window_leaves_out_files_and_messages(index: KeyIndex, clock: ManualClock) -> None:
    fill(index, clock, 3 * PER_FILE)
    window = (START_MS + 15_000, START_MS + 45_000)
    assert find(index, "five", *window) == [4500, 4000, 3500, 3000, 2500, 2000, 1500]


def test_file_is_named_by_the_local_time_of_its_creation(
    index: KeyIndex, clock: ManualClock
) -> None:
    fill(index, clock, 1)
    name = index.files[0].path.name
    assert name == index_file_name(START_MS)
    assert len(name) == 17
    assert name.endswith("000")


def test_two_files_of_one_millisecond_get_two_names(index: KeyIndex) -> None:
    for number in range(PER_FILE + 1):
        index.put("T", [b"k"], number, START_MS)
    first, second = index.files
    assert int(second.path.name) == int(first.path.name) + 1


def test_load_finds_the_keys_again(
    index: KeyIndex, tmp_path: Path, clock: ManualClock, disk: StagedDisk
) -> None:
    fill(index, clock, PER_FILE + 5)
    expected = find(index, "five")
    index.close()
    again = new_index(disk, clock, tmp_path)
    assert find(again, "five") == expected
    assert (again.end_offset, len(again.files)) == ((PER_FILE + 4) * 100, 2)


def test_file_that_cannot_be_an_index_is_removed(
    index: KeyIndex, tmp_path: Path, clock: ManualClock, disk: StagedDisk
) -> None:
    fill(index, clock, 1)
    sound = index.files[0].path
    index.close()
    short = sound.with_name("20200101000000000")
    short.write_bytes(b"short")
    other = sound.with_name("notes.txt")
    other.write_text("not ours")
    again = KeyIndex(StoreFiles.of(disk), clock, small_settings(tmp_path))
    assert again.load() == [short]
    assert sorted(path.name for path in sound.parent.iterdir()) == [sound.name, other.name]


def test_cut_takes_back_keys_and_empty_files(index: KeyIndex, clock: ManualClock) -> None:
    fill(index, clock, PER_FILE + 5)
    index.cut((PER_FILE - 2) * 100)
    assert len(index.files) == 1
    assert index.end_offset == (PER_FILE - 3) * 100
    index.cut(0)
    assert (index.end_offset, find(index, "five")) == (-1, [])
    index.put("T", [b"five"], 7, clock.wall_ms())
    assert find(index, "five") == [7]


def test_unsafe_files_go_and_the_rest_says_where_to_go_on(
    index: KeyIndex, clock: ManualClock
) -> None:
    fill(index, clock, 2 * PER_FILE + 5)
    safe_ms = index.files[1].end_timestamp
    assert index.drop_unsafe(safe_ms) == (2 * PER_FILE - 1) * 100 + 1
    assert len(index.files) == 2
    assert index.drop_unsafe(0) == 0
    assert index.files == []


def test_files_go_when_their_last_message_is_gone(index: KeyIndex, clock: ManualClock) -> None:
    fill(index, clock, 2 * PER_FILE + 5)
    end_offset = index.files[0].end_offset
    assert index.drop_files_below(end_offset) == 0
    assert index.drop_files_below(end_offset + 1) == 1
    assert index.drop_files_below(1 << 60) == 1  # the newest stays
    assert find(index, "five") == [4000]


def test_full_disk_puts_all_keys_of_a_message_or_none(
    index: KeyIndex, clock: ManualClock, disk: StagedDisk
) -> None:
    fill(index, clock, PER_FILE - 1)
    disk.on_allocate = no_space
    with pytest.raises(OSError, match="No space left"):
        index.put("T", [b"a", b"b"], 9_000, clock.wall_ms())
    assert find(index, "a") == []
    disk.on_allocate = lambda: None
    index.put("T", [b"a", b"b"], 9_000, clock.wall_ms())
    assert (find(index, "a"), find(index, "b")) == ([9_000], [9_000])
    assert len(list(index.files[0].path.parent.iterdir())) == 2


def test_text_of_any_language_is_a_key(index: KeyIndex) -> None:
    index.put("T", ["schlüssel".encode(), "鍵😀".encode()], 100, START_MS)
    assert find(index, "schlüssel") == [100]
    assert find(index, "鍵😀") == [100]
