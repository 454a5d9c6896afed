"""Queue, index, checkpoint and table files of the real RocketMQ, read and written again."""

import hashlib
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest
from golden.captured import (
    CAPTURES,
    INDEX_ITEMS,
    INDEX_SLOTS,
    QUEUE_FILE_ENTRIES,
    SEGMENT_BYTES,
    manifest,
    store_file,
    store_files,
)
from golden.test_records import records

from downrange.protocol.delay_levels import DelayLevels
from downrange.protocol.java_hash import index_key_hash, java_hash_bytes
from downrange.runtime.disk import Disk
from downrange.store.checkpoint import decode_checkpoint, encode_checkpoint
from downrange.store.consume_queue import ENTRY, ENTRY_BYTES
from downrange.store.dispatch_entry import EntryReader
from downrange.store.feature_tables import (
    ordered_pops_file,
    request_modes_file,
    timer_metrics_file,
    transaction_metrics_file,
)
from downrange.store.index_file import IndexFile
from downrange.store.json_tables import Table, TableFile, groups_file, topics_file
from downrange.store.offset_tables import (
    consumer_offsets_file,
    delay_offsets_file,
)
from downrange.store.settings import StoreSettings
from downrange.store.store_files import StoreFiles

LEVELS = DelayLevels.parse(StoreSettings(root=Path()).delay_levels)
UNSIGNED = 0xFFFFFFFF


def rewrite(open_file: Callable[[Disk, Path], TableFile[Table]], folder: Path) -> None:
    """Load a table and save it as if there were none yet."""
    file = open_file(Disk(), folder)
    table = file.load()
    assert table is not None
    file.path.unlink()
    file.save(table)


REWRITES: dict[str, Callable[[Path], None]] = {
    "topics.json": partial(rewrite, topics_file),
    "subscriptionGroup.json": partial(rewrite, groups_file),
    "consumerOffset.json": partial(rewrite, consumer_offsets_file),
    "delayOffset.json": partial(rewrite, delay_offsets_file),
    "messageRequestMode.json": partial(rewrite, request_modes_file),
    "consumerOrderInfo.json": partial(rewrite, ordered_pops_file),
    "timermetrics": partial(rewrite, timer_metrics_file),
    "transactionMetrics": partial(rewrite, transaction_metrics_file),
}
CAPTURED_TABLES = [
    (capture, name)
    for capture in CAPTURES
    for name in REWRITES
    if f"config/{name}" in manifest(capture)
]


@pytest.mark.parametrize("capture", CAPTURES)
def test_a_stored_file_is_whole(capture: str) -> None:
    for path, facts in manifest(capture).items():
        assert hashlib.sha256(store_file(capture, path)).hexdigest() == facts["sha256"], path


@pytest.mark.parametrize("capture", CAPTURES)
def test_queue_entries_are_what_the_log_says(capture: str) -> None:
    """Each entry is made again from the record it points at."""
    log = {offset: found[0] for offset, found in records(capture).items()}
    sizes = {offset: len(found[1]) for offset, found in records(capture).items()}
    reader = EntryReader(LEVELS)
    count = 0
    for path, content in store_files(capture, "consumequeue"):
        _, topic, queue_id, name = path.split("/")
        assert len(content) == QUEUE_FILE_ENTRIES * ENTRY_BYTES
        for index, (physical, size, tag_code) in enumerate(ENTRY.iter_unpack(content)):
            if not size:
                break
            record = log[physical]
            assert (record.topic.decode(), record.queue_id) == (topic, int(queue_id))
            assert record.queue_offset == int(name) // ENTRY_BYTES + index
            assert size == sizes[physical]
            assert tag_code == reader.tag_code(topic, record.properties, record.store_timestamp)
            count += 1
    assert count > 20


@pytest.mark.parametrize("capture", CAPTURES)
def test_an_index_built_from_the_log_has_the_same_bytes(capture: str, tmp_path: Path) -> None:
    reader = EntryReader(LEVELS)
    expected = [content for _, content in store_files(capture, "index")]
    built: list[IndexFile] = []
    disk = Disk()
    for physical_offset, (record, _) in records(capture).items():
        for key in reader.keys(record.sys_flag, record.properties):
            if not built or built[-1].is_full:
                path = tmp_path / str(len(built))
                file = IndexFile(StoreFiles.of(disk), path, INDEX_SLOTS, INDEX_ITEMS, create=True)
                if built:
                    file.begin_behind(built[-1].end_offset, built[-1].end_timestamp)
                built.append(file)
            key_hash = index_key_hash(java_hash_bytes(record.topic + b"#" + key) & UNSIGNED)
            built[-1].put(key_hash, physical_offset, record.store_timestamp)
    for file in built:
        file.close()
    assert [file.path.read_bytes() for file in built] == expected


@pytest.mark.parametrize("capture", CAPTURES)
def test_a_checkpoint_written_again_has_the_same_bytes(capture: str) -> None:
    content = store_file(capture, "checkpoint")
    assert encode_checkpoint(decode_checkpoint(content)) == content


def test_a_log_file_has_its_full_size() -> None:
    for capture in CAPTURES:
        assert {len(content) for _, content in store_files(capture, "commitlog")} == {SEGMENT_BYTES}


@pytest.mark.parametrize(("capture", "name"), CAPTURED_TABLES)
def test_a_table_written_again_has_the_same_bytes(capture: str, name: str, tmp_path: Path) -> None:
    content = store_file(capture, f"config/{name}")
    (tmp_path / name).write_bytes(content)
    REWRITES[name](tmp_path)
    assert (tmp_path / name).read_bytes() == content
