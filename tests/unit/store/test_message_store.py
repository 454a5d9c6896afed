"""The store as a whole: open, append, dispatch, read, close, open again."""

from pathlib import Path

import pytest
from unit.store.building import (
    StagedDisk,
    bodies_of,
    crash,
    fill,
    input_output_error,
    numbered,
    open_store,
    small_settings,
)

from downrange.protocol.batch import encode_batch
from downrange.store.errors import (
    AppendRefusedError,
    StoreDamagedError,
    StoreGivenUpError,
    StoreLockedError,
    StoreUnavailableError,
)
from downrange.store.message_store import MessageStore
from downrange.store.ownership import LastStop
from downrange.store.reader import ReadStatus
from downrange.store.settings import FlushMode, FlushSettings, StoreSettings
from downrange.testing.clock import ManualClock


def tree(root: Path) -> set[str]:
    return {str(path.relative_to(root)) for path in root.rglob("*") if path.is_file()}


def test_message_goes_in_and_comes_out(store: MessageStore) -> None:
    store.append("T", 0, b"hello", b"")
    store.dispatch_some()
    assert bodies_of(store.read("T", 0, 0, 1)) == [b"hello"]


def test_messages_are_there_after_close_and_open(tmp_path: Path, disk: StagedDisk) -> None:
    store = open_store(tmp_path, disk=disk)
    for body in numbered(5):
        store.append("T", 0, body, b"")  # neither dispatched nor flushed
    store.close()
    assert disk.open_descriptors == set()
    again = open_store(tmp_path, disk=disk)
    assert again.last_stop is LastStop.CLEAN
    assert bodies_of(again.read("T", 0, 0, 10)) == numbered(5)
    again.close()


def test_a_store_that_is_given_up_while_it_opens_loses_nothing(
    tmp_path: Path, disk: StagedDisk
) -> None:
    store = open_store(tmp_path, disk=disk)
    fill(store, numbered(5))
    crash(store)
    unwanted = MessageStore(small_settings(tmp_path), disk)
    unwanted.give_up()
    with pytest.raises(StoreGivenUpError, match="given up at offset 0"):
        unwanted.open()
    assert not unwanted.is_open
    assert disk.open_descriptors == set()
    unwanted.close()
    again = open_store(tmp_path, disk=disk)
    assert bodies_of(again.read("T", 0, 0, 10)) == numbered(5)
    again.close()


def test_files_stand_where_rocketmq_has_them(tmp_path: Path) -> None:
    store = open_store(tmp_path)
    fill(store, [b"x"], properties=b"KEYS\x01k\x02", queue_id=3)
    assert store.index is not None
    name = store.index.files[0].path.name
    zero = "0" * 20
    opened = {
        "abort",
        "checkpoint",
        "lock",
        f"commitlog/{zero}",
        f"consumequeue/T/3/{zero}",
        f"index/{name}",
    }
    assert tree(tmp_path) == opened
    store.close()
    assert tree(tmp_path) == opened - {"abort"} | {"checkpoint", "derived.json"}


def test_default_file_sizes_are_those_of_rocketmq(tmp_path: Path) -> None:
    settings = StoreSettings(root=tmp_path)
    assert settings.segment_bytes == 1 << 30
    assert settings.queue_entries * 20 == 6_000_000


def test_close_twice_and_close_before_open_do_nothing(tmp_path: Path) -> None:
    store = MessageStore(small_settings(tmp_path), StagedDisk(), ManualClock())
    store.close()
    assert tree(tmp_path) == set()
    store.open()
    store.close()
    store.close()


def test_closed_store_finds_nothing(tmp_path: Path) -> None:
    store = open_store(tmp_path)
    fill(store, [b"x"])
    store.close()
    assert store.read("T", 0, 0, 1).status is ReadStatus.NO_MATCHED_LOGIC_QUEUE
    with pytest.raises(AppendRefusedError, match="not open"):
        store.append_batch("T", 0, encode_batch([(0, b"x", b"")]))


def test_second_store_on_the_same_directory_is_refused(store: MessageStore, tmp_path: Path) -> None:
    fill(store, [b"x"])
    other = MessageStore(small_settings(tmp_path), StagedDisk(), ManualClock())
    with pytest.raises(StoreLockedError):
        other.open()
    assert bodies_of(store.read("T", 0, 0, 1)) == [b"x"]


def test_wrong_file_size_is_refused_and_lets_the_right_one_in(
    tmp_path: Path, disk: StagedDisk
) -> None:
    store = open_store(tmp_path, disk=disk)
    fill(store, numbered(60))
    store.close()
    before = {path: (tmp_path / path).read_bytes() for path in tree(tmp_path)}
    wrong = MessageStore(small_settings(tmp_path, segment_bytes=1024), disk, ManualClock())
    with pytest.raises(StoreDamagedError, match="configure the size"):
        wrong.open()
    assert {path: (tmp_path / path).read_bytes() for path in tree(tmp_path)} == before
    assert disk.open_descriptors == set()
    again = open_store(tmp_path, disk=disk)
    assert again.read("T", 0, 0, 1).max_offset == 60
    again.close()


def test_sync_mode_shows_only_what_is_durable(tmp_path: Path) -> None:
    store = open_store(tmp_path, flush=FlushSettings(mode=FlushMode.SYNC))
    store.append("T", 0, b"x", b"")
    store.dispatch_some()
    assert store.read("T", 0, 0, 1).status is ReadStatus.NO_MESSAGE_IN_QUEUE
    store.flush_now()
    store.dispatch_some()
    assert store.read("T", 0, 0, 1).status is ReadStatus.FOUND
    store.close()


def test_what_recovery_found_is_synced_before_it_is_shown(tmp_path: Path, disk: StagedDisk) -> None:
    store = open_store(tmp_path, disk=disk)
    store.append("T", 0, b"x", b"")
    crash(store)
    disk.on_sync = input_output_error
    broken = MessageStore(small_settings(tmp_path), disk, ManualClock())
    with pytest.raises(StoreUnavailableError, match="Input/output error"):
        broken.open()
    disk.on_sync = lambda: None
    again = open_store(tmp_path, disk=disk)
    assert again.durable_offset == again.log.max_offset > 0
    again.close()


def test_listener_of_the_store_hears_of_new_messages_only(tmp_path: Path, disk: StagedDisk) -> None:
    store = open_store(tmp_path, disk=disk)
    fill(store, [b"old"])
    store.close()
    heard: list[int] = []
    again = MessageStore(small_settings(tmp_path), disk, ManualClock())
    again.add_listener(lambda _topic, _queue, offset, _tag, _ms, _text: heard.append(offset))
    again.open()
    fill(again, [b"new"])
    assert heard == [1]
    again.close()


def test_two_listeners_hear_the_same(store: MessageStore) -> None:
    heard: list[str] = []
    for name in ("a", "b"):
        store.add_listener(lambda topic, *_, name=name: heard.append(name + topic))
    fill(store, [b"x"])
    assert heard == ["aT", "bT"]


# --- deleting a topic ---------------------------------------------------------------------


def test_deleted_topic_is_gone_and_others_stay(store: MessageStore, tmp_path: Path) -> None:
    fill(store, numbered(3))
    fill(store, numbered(3), queue_id=1)
    fill(store, numbered(2), topic="U")
    assert store.delete_topic("T") == 2
    assert store.delete_topic("T") == 0
    assert store.read("T", 0, 0, 1).status is ReadStatus.NO_MATCHED_LOGIC_QUEUE
    assert bodies_of(store.read("U", 0, 0, 10)) == numbered(2)
    assert [path.name for path in (tmp_path / "consumequeue").iterdir()] == ["U"]


def test_new_topic_of_the_same_name_starts_at_zero(store: MessageStore) -> None:
    fill(store, numbered(3))
    store.delete_topic("T")
    assert store.append("T", 0, b"new", b"").queue_offset == 0
    store.dispatch_some()
    assert bodies_of(store.read("T", 0, 0, 10)) == [b"new"]


def test_messages_that_wait_for_dispatch_go_with_their_topic(store: MessageStore) -> None:
    fill(store, numbered(3))
    store.append("T", 0, b"waits", b"KEYS\x01k\x02")
    store.append("U", 0, b"other", b"")
    store.delete_topic("T")
    store.append("T", 0, b"new", b"")
    assert store.dispatch_some() == 3
    assert bodies_of(store.read("T", 0, 0, 10)) == [b"new"]
    assert bodies_of(store.read("U", 0, 0, 10)) == [b"other"]
    assert store.dispatched_offset == store.log.max_offset


def test_deleted_topic_that_must_be_read_from_the_log_again_stays_deleted(
    store: MessageStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("downrange.store.dispatcher.PENDING_MAX", 1)
    for body in numbered(4):
        store.append("T", 0, body, b"")
    store.dispatch_some(2)
    store.delete_topic("T")
    store.append("T", 0, b"new", b"")
    while store.dispatch_some():
        pass
    assert bodies_of(store.read("T", 0, 0, 10)) == [b"new"]


@pytest.mark.parametrize("is_clean", [True, False])
def test_deleted_topic_does_not_come_back_with_a_restart(
    tmp_path: Path, disk: StagedDisk, is_clean: bool
) -> None:
    store = open_store(tmp_path, disk=disk)
    fill(store, numbered(5))
    fill(store, numbered(5), topic="V")
    store.delete_topic("T")
    store.delete_topic("V")
    fill(store, [b"new", b"newer"])
    for _ in range(2):
        if is_clean:
            store.close()
        else:
            crash(store)
            disk.boot += "x"
        store = open_store(tmp_path, disk=disk)
        assert bodies_of(store.read("T", 0, 0, 10)) == [b"new", b"newer"]
        assert store.read("V", 0, 0, 1).status is ReadStatus.NO_MATCHED_LOGIC_QUEUE
    store.close()


def test_deleted_topic_of_a_log_that_is_gone_hides_nothing_new(
    tmp_path: Path, disk: StagedDisk
) -> None:
    store = open_store(tmp_path, disk=disk)
    fill(store, numbered(60))
    store.delete_topic("T")
    store.close()
    for path in (tmp_path / "commitlog").iterdir():
        path.unlink()
    store = open_store(tmp_path, disk=disk, starts_without_log=True)
    store.append("T", 0, b"new", b"")
    crash(store)
    store = open_store(tmp_path, disk=disk)
    assert bodies_of(store.read("T", 0, 0, 10)) == [b"new"]
    store.close()
