"""A deletion of a topic is for good once it was answered, whatever happens in between."""

import errno
import json
import shutil
from pathlib import Path

import pytest
from unit.store.building import open_store

from downrange.runtime.durable_file import DurableFileError
from downrange.store.deleted_topics import FILE_NAME
from downrange.store.message_store import MessageStore
from downrange.testing.faulty_disk import FaultyDisk

TOPIC = "orders"
OPERATIONS = ("write", "rename", "fsync_directory", "unlink", "remove_directory")


def put(store: MessageStore, bodies: str, topic: str = TOPIC) -> None:
    """One message per letter, alternating between two queues."""
    for number, body in enumerate(bodies):
        store.append(topic, number % 2, body.encode(), b"")
    assert store.flush_now()
    store.dispatch_some()


def seen(store: MessageStore, topic: str = TOPIC) -> list[str]:
    """What consumers of the two queues see."""
    found = []
    for queue in store.queues.of_topic(topic):
        result = store.read(topic, queue.queue_id, queue.min_offset, 32)
        found += [bytes(view[-len(topic) - 4 : -len(topic) - 3]).decode() for view in result.views]
    return sorted(found)


def killed(store: MessageStore, root: Path, disk: FaultyDisk | None = None) -> MessageStore:
    """The store as the next process finds it."""
    store.abandon()
    return open_store(root, disk=disk)


@pytest.mark.parametrize("operation", OPERATIONS)
def test_a_kill_at_any_step_of_a_deletion_leaves_all_or_nothing(
    tmp_path: Path, operation: str
) -> None:
    for step in range(1, 20):
        root = tmp_path / str(step)
        disk = FaultyDisk()
        store = open_store(root, disk=disk)
        put(store, "xx", "other")
        put(store, "abc")
        fault = disk.fail(operation, errno.EIO, at_call=step, times=1)
        is_refused = False
        try:
            store.delete_topic(TOPIC)
        except OSError:
            is_refused = True
        disk.heal()
        store = killed(store, root)
        assert seen(store) in ([], ["a", "b", "c"])
        if not is_refused:
            assert seen(store) == []
        store.delete_topic(TOPIC)
        put(store, "de")
        assert seen(store) == ["d", "e"]
        store = killed(store, root)
        assert seen(store) == ["d", "e"]
        assert seen(store, "other") == ["x", "x"]
        store.close()
        store = open_store(root)
        assert seen(store) == ["d", "e"]
        store.close()
        if not is_refused:
            assert fault.seen < step
            return
    raise AssertionError("every call of the deletion failed, and there were more")


def test_queues_that_come_back_with_a_power_failure_are_removed(tmp_path: Path) -> None:
    store = open_store(tmp_path)
    put(store, "abc")
    queues = tmp_path / "consumequeue" / TOPIC
    shutil.copytree(queues, tmp_path / "copy")
    store.delete_topic(TOPIC)
    put(store, "d")  # of two queues only the first exists again
    store.abandon()
    shutil.copytree(tmp_path / "copy" / "1", queues / "1", dirs_exist_ok=True)
    (tmp_path / "abort").write_text("1\nanother boot\n")
    store = open_store(tmp_path)
    assert seen(store) == ["d"]
    store.close()


def test_a_deletion_costs_no_manifest_and_no_second_reading_of_the_log(tmp_path: Path) -> None:
    store = open_store(tmp_path)
    for _ in range(200):
        put(store, "abcdefgh")
    put(store, "xx", "other")
    store.close()
    manifest = tmp_path / "derived.json"
    before = manifest.read_bytes()
    store = open_store(tmp_path)
    store.delete_topic(TOPIC)
    assert manifest.read_bytes() == before
    store.abandon()
    store = open_store(tmp_path)
    assert not store.queues.forgotten
    assert (seen(store), seen(store, "other")) == ([], ["x", "x"])
    store.close()


def test_deletions_of_an_older_manifest_are_taken_over(tmp_path: Path) -> None:
    store = open_store(tmp_path)
    put(store, "abc")
    store.delete_topic(TOPIC)
    store.close()
    for suffix in ("", ".bak"):
        (tmp_path / (FILE_NAME + suffix)).unlink(missing_ok=True)
    shutil.rmtree(tmp_path / "consumequeue")
    store = open_store(tmp_path)
    assert seen(store) == []
    store.abandon()
    (tmp_path / "derived.json").unlink()
    shutil.rmtree(tmp_path / "consumequeue")
    store = open_store(tmp_path)
    assert seen(store) == [], "they are in the file now"
    store.close()


def test_a_log_that_has_lost_its_end_hides_nothing_that_comes_later(tmp_path: Path) -> None:
    store = open_store(tmp_path)
    put(store, "a", "other")
    end_offset = store.log.max_offset
    put(store, "abc")
    store.delete_topic(TOPIC)
    store.abandon()
    log = tmp_path / "commitlog" / ("0" * 20)
    log.write_bytes(log.read_bytes()[:end_offset].ljust(log.stat().st_size, b"\0"))
    store = open_store(tmp_path)
    put(store, "de")
    for _ in range(2):
        store = killed(store, tmp_path)
        assert seen(store) == ["d", "e"]
    store.close()


def test_a_deletion_is_forgotten_when_the_log_has_no_record_of_it(tmp_path: Path) -> None:
    store = open_store(tmp_path)
    put(store, "a")
    store.delete_topic(TOPIC)
    while store.log.chain.segments[-1].base_offset == 0:
        put(store, "xy" * 50, "other")
    assert store.log.chain.drop_first()
    store.retention.follow_log()
    store.abandon()
    store = open_store(tmp_path)
    assert json.loads((tmp_path / FILE_NAME).read_bytes()) == {"deletedBelow": {}}
    store.close()


def test_a_damaged_list_of_deletions_ends_the_start(tmp_path: Path) -> None:
    store = open_store(tmp_path)
    put(store, "a")
    store.delete_topic(TOPIC)
    store.close()
    (tmp_path / FILE_NAME).write_bytes(b"{")
    with pytest.raises(DurableFileError, match=FILE_NAME):
        open_store(tmp_path)
