"""The list of what was derived, by which losses are noticed."""

import json
from pathlib import Path

from unit.store.building import StagedDisk, fill, numbered, open_store

from downrange.store.manifest import Manifest, ManifestFile
from downrange.store.message_store import MessageStore

KEYS = b"KEYS\x01k\x02"


def saved(store: MessageStore, disk: StagedDisk, root: Path) -> Manifest:
    file = ManifestFile(disk, root)
    file.save(store.queues, store.index, {"gone": 17}, store.log.min_offset, store.log.max_offset)
    manifest = file.load()
    assert manifest is not None
    return manifest


def test_missing_file_is_no_manifest(tmp_path: Path, disk: StagedDisk) -> None:
    assert ManifestFile(disk, tmp_path).load() is None


def test_unreadable_file_is_no_manifest(tmp_path: Path, disk: StagedDisk) -> None:
    for content in (b"", b"{", b'{"dispatched_end": "many"}'):
        (tmp_path / "derived.json").write_bytes(content)
        assert ManifestFile(disk, tmp_path).load() is None


def test_file_of_an_older_version_is_read(tmp_path: Path, disk: StagedDisk) -> None:
    (tmp_path / "derived.json").write_text('{"dispatched_end":5,"queues":{},"index":{}}')
    manifest = ManifestFile(disk, tmp_path).load()
    assert manifest is not None
    assert manifest.deleted_below == {}


def test_manifest_names_queues_and_index_files(
    store: MessageStore, tmp_path: Path, disk: StagedDisk
) -> None:
    fill(store, numbered(3), properties=KEYS)
    fill(store, numbered(2), queue_id=1)
    manifest = saved(store, disk, tmp_path)
    assert store.index is not None
    name = store.index.files[0].path.name
    assert manifest.dispatched_end == store.log.max_offset
    assert manifest.queues == {"T": {0: 3, 1: 2}}
    assert manifest.index == {name: store.index.files[0].checksum()}
    assert manifest.deleted_below == {"gone": 17}
    assert set(json.loads((tmp_path / "derived.json").read_text())) == {
        "dispatched_end",
        "queues",
        "index",
        "first_offsets",
        "log_start",
        "log_end",
        "positions",
        "positions_checksum",
        "deleted_below",
        "queue_files",
    }


def test_queue_with_fewer_entries_is_missed(
    store: MessageStore, tmp_path: Path, disk: StagedDisk
) -> None:
    fill(store, numbered(3))
    fill(store, numbered(2), topic="U")
    manifest = saved(store, disk, tmp_path)
    assert manifest.missing_queues(store.queues) == []
    fill(store, numbered(1))
    assert manifest.missing_queues(store.queues) == []
    store.queues.delete_topic("U")
    assert manifest.missing_queues(store.queues) == ["U/0"]


def test_queue_whose_first_file_is_gone_is_noticed(
    store: MessageStore, tmp_path: Path, disk: StagedDisk
) -> None:
    fill(store, numbered(25))
    manifest = saved(store, disk, tmp_path)
    assert manifest.beheaded_queues(store.queues, 0) == []
    queue = store.queues.of_topic("T")[0]
    queue.chain.drop_first()
    assert manifest.beheaded_queues(store.queues, 0) == [queue]
    assert manifest.beheaded_queues(store.queues, 4096) == []  # retention may have had a reason


def test_index_file_that_changed_is_noticed_if_nothing_may_have(
    store: MessageStore, tmp_path: Path, disk: StagedDisk
) -> None:
    fill(store, numbered(1), properties=KEYS)
    manifest = saved(store, disk, tmp_path)
    index = store.index
    assert index is not None
    name = index.files[0].path.name
    assert manifest.damaged_index_files(index, unchanged=True) == []
    fill(store, numbered(1), properties=KEYS)
    assert manifest.damaged_index_files(index, unchanged=False) == []
    assert manifest.damaged_index_files(index, unchanged=True) == [name]
    index.drop_all()
    assert manifest.damaged_index_files(index, unchanged=False) == [name]


def test_store_without_index_has_a_manifest_too(tmp_path: Path, disk: StagedDisk) -> None:
    store = open_store(tmp_path, disk=disk, index_enabled=False)
    fill(store, numbered(1))
    assert saved(store, disk, tmp_path).index == {}
    store.close()
