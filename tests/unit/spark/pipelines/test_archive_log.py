"""The log of an archive: each batch once, whatever dies when."""

import pytest
from unit.spark.pipelines.memory_files import DiedError, MemoryFiles

from downrange.spark.pipelines.archive_errors import ArchiveError
from downrange.spark.pipelines.archive_log import MANIFEST, SNAPSHOT_EVERY, STAGING, ArchiveLog

DAY = "topic=orders/date=2026-01-01"
NEXT_DAY = "topic=orders/date=2026-01-02"
BATCHES = 4


def stage(files: MemoryFiles, batch: int) -> str:
    """What Spark would have written for a batch: the same rows each time, in files of any name."""
    staged = f"{STAGING}/batch-{batch:010d}"
    files.delete(staged)
    files.create_text(f"{staged}/_SUCCESS", "")
    files.create_text(f"{staged}/{DAY}/part-x.parquet", f"[{batch}a]")
    files.create_text(f"{staged}/{NEXT_DAY}/part-y.parquet", f"[{batch}b]")
    return staged


def run(files: MemoryFiles, batches: int) -> None:
    """A run of the pipeline: goes on, writes what is missing, merges the first day once."""
    log = ArchiveLog(files, "/archive")
    log.open("query-1")
    for batch in range(batches):
        if log.has_batch(batch):
            continue
        log.add_batch(batch, stage(files, batch))
        small = [path for path in sorted(log.state.files) if path.startswith(DAY)]
        if len(small) > 2:
            staged = f"{STAGING}/compact"
            files.create_text(
                f"{staged}/part-0.parquet", "".join(files.read_text(path) for path in small)
            )
            log.replace(small, staged, DAY)


def rows(files: MemoryFiles) -> list[str]:
    """What a reader of the log finds."""
    log = ArchiveLog(files, "/archive")
    texts = "".join(files.read_text(path) for path in log.state.files)
    return sorted(texts.replace("[", "").split("]")[:-1])


def data(files: MemoryFiles) -> set[str]:
    return {path for path in files.texts if path.startswith("topic=")}


WANTED = sorted(f"{batch}{part}" for batch in range(BATCHES) for part in "ab")


def test_every_batch_is_there_once_wherever_a_run_dies() -> None:
    whole = MemoryFiles()
    run(whole, BATCHES)
    assert rows(whole) == WANTED
    steps = (1 << 60) - whole.changes_left
    assert steps > 30
    for step in range(steps):
        files = MemoryFiles(changes_left=step)
        with pytest.raises(DiedError):
            run(files, BATCHES)
        files.changes_left = 1 << 60
        seen = rows(files)
        assert len(seen) == len(set(seen)), step
        run(files, BATCHES)
        assert rows(files) == WANTED, step
        assert data(files) == set(ArchiveLog(files, "").state.files), step
        assert not files.sizes_below(STAGING), step


def test_it_dies_twice_at_any_two_steps() -> None:
    for first in range(0, 40, 3):
        for second in range(0, 40, 3):
            files = MemoryFiles()
            for left in (first, second):
                files.changes_left = left
                try:
                    run(files, BATCHES)
                except DiedError:
                    continue
            files.changes_left = 1 << 60
            run(files, BATCHES)
            assert rows(files) == WANTED, (first, second)


def test_snapshots_keep_the_manifest_short() -> None:
    files = MemoryFiles()
    log = ArchiveLog(files, "/archive")
    log.open("query-1")
    for batch in range(SNAPSHOT_EVERY * 2 + 3):
        log.add_batch(batch, stage(files, batch))
    assert len(files.names(MANIFEST)) == 4
    assert ArchiveLog(files, "/archive").state == log.state
    assert len(rows(files)) == 2 * (SNAPSHOT_EVERY * 2 + 3)


def test_another_checkpoint_is_refused() -> None:
    files = MemoryFiles()
    run(files, 1)
    with pytest.raises(ArchiveError, match="another checkpoint"):
        ArchiveLog(files, "/archive").open("query-2")


def test_data_without_a_manifest_is_not_touched() -> None:
    files = MemoryFiles()
    run(files, 1)
    files.delete(MANIFEST)
    with pytest.raises(ArchiveError, match="no _manifest"):
        ArchiveLog(files, "/archive").open("query-1")
    assert len(data(files)) == 2


def test_a_second_run_at_the_same_time_is_refused() -> None:
    files = MemoryFiles()
    one, other = ArchiveLog(files, "/archive"), ArchiveLog(files, "/archive")
    one.open("query-1")
    with pytest.raises(ArchiveError, match="one at a time"):
        other.open("query-1")


def test_a_missing_entry_is_told() -> None:
    files = MemoryFiles()
    run(files, 3)
    files.delete(f"{MANIFEST}/0000000002.json")
    with pytest.raises(ArchiveError, match="lacks the entry 2"):
        ArchiveLog(files, "/archive")
