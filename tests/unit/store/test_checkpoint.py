"""The checkpoint file; the golden bytes come from a RocketMQ 5.5.0 store."""

from pathlib import Path

import pytest
from unit.store.building import StagedDisk

from downrange.store.checkpoint import (
    Checkpoint,
    CheckpointFile,
    decode_checkpoint,
    encode_checkpoint,
)

JAVA_BYTES = bytes.fromhex(
    "000001a1e11b7f86000001a1e11b7f86000001a1e11b7f8400000000000000000000000000000000"
)
JAVA_VALUES = Checkpoint(0x1A1E11B7F86, 0x1A1E11B7F86, 0x1A1E11B7F84)


def test_values_stand_where_java_has_them() -> None:
    assert decode_checkpoint(JAVA_BYTES.ljust(4096, b"\0")) == JAVA_VALUES
    assert encode_checkpoint(JAVA_VALUES) == JAVA_BYTES.ljust(4096, b"\0")


def test_every_value_survives() -> None:
    checkpoint = Checkpoint(1, 2, 3, 4, 5, 6)
    assert decode_checkpoint(encode_checkpoint(checkpoint)) == checkpoint
    assert len(encode_checkpoint(checkpoint)) == 4096


@pytest.mark.parametrize("length", [0, 8, 47])
def test_short_file_says_nothing(length: int) -> None:
    assert decode_checkpoint(encode_checkpoint(JAVA_VALUES)[:length]) == Checkpoint()


@pytest.mark.parametrize(
    ("log_ms", "queue_ms", "expected"),
    [(10_000, 8_000, 5_000), (8_000, 10_000, 5_000), (2_999, 9_999, 0), (0, 10_000, 0)],
)
def test_recovery_goes_back_three_seconds_before_the_older_of_log_and_queues(
    log_ms: int, queue_ms: int, expected: int
) -> None:
    assert Checkpoint(log_ms, queue_ms, 1 << 60).recovery_timestamp == expected


def test_missing_file_says_nothing(tmp_path: Path, disk: StagedDisk) -> None:
    assert CheckpointFile(disk, tmp_path).load() == Checkpoint()


def test_file_is_replaced_as_a_whole(tmp_path: Path, disk: StagedDisk) -> None:
    file = CheckpointFile(disk, tmp_path)
    file.save(Checkpoint(1, 2, 3))
    before = (tmp_path / "checkpoint").stat().st_ino
    file.save(JAVA_VALUES)
    assert (tmp_path / "checkpoint").stat().st_ino != before
    assert file.load() == JAVA_VALUES
    assert [path.name for path in tmp_path.iterdir()] == ["checkpoint"]
