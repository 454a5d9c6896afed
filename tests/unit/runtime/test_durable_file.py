"""A small file survives every crash: the old or the new content, never half of one."""

from collections.abc import Callable
from pathlib import Path

import pytest

from downrange.runtime.disk import Disk
from downrange.runtime.durable_file import DurableFile, DurableFileError


class CrashingDisk(Disk):
    """Dies before its n-th change; a write that dies may have written a part."""

    def __init__(self, changes_left: int) -> None:
        self.changes_left = changes_left

    def _step(self) -> None:
        if self.changes_left == 0:
            raise OSError("power is gone")
        self.changes_left -= 1

    def write(self, path: Path, data: bytes) -> None:
        if self.changes_left == 0:
            super().write(path, data[: len(data) // 2])
        self._step()
        super().write(path, data)

    def rename(self, source: Path, target: Path) -> None:
        self._step()
        super().rename(source, target)

    def fsync_directory(self, path: Path) -> None:
        self._step()
        super().fsync_directory(path)


def parse(data: bytes) -> str:
    text = data.decode()
    if not text.endswith("."):
        raise ValueError("no full stop")
    return text


def durable_file(path: Path, disk: Disk | None = None) -> DurableFile[str]:
    return DurableFile(disk or Disk(), path / "table.json", parse)


def crash_at_every_step(path: Path, run: Callable[[Disk], None], check: Callable[[], None]) -> int:
    for step in range(20):
        for leftover in path.iterdir():
            leftover.unlink()
        durable_file(path).replace(b"oldest.")
        durable_file(path).replace(b"old.")
        disk = CrashingDisk(step)
        try:
            run(disk)
        except OSError:
            check()
        else:
            return step
    raise AssertionError("never came to an end")


def test_content_is_read_back(tmp_path: Path) -> None:
    file = durable_file(tmp_path)
    assert file.load() is None
    file.replace(b"new.")
    assert durable_file(tmp_path).load() == "new."


def test_predecessor_is_kept_where_rocketmq_looks_for_it(tmp_path: Path) -> None:
    file = durable_file(tmp_path)
    file.replace(b"one.")
    file.replace(b"two.")
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == {
        "table.json": b"two.",
        "table.json.bak": b"one.",
    }


def test_crash_at_any_step_leaves_the_old_or_the_new_content(tmp_path: Path) -> None:
    def check() -> None:
        assert durable_file(tmp_path).load() in {"old.", "new."}

    steps = crash_at_every_step(
        tmp_path, lambda disk: durable_file(tmp_path, disk).replace(b"new."), check
    )
    assert steps == 4
    assert durable_file(tmp_path).load() == "new."


def test_file_can_be_replaced_after_any_crash(tmp_path: Path) -> None:
    def check() -> None:
        durable_file(tmp_path).replace(b"after.")
        assert durable_file(tmp_path).load() == "after."

    crash_at_every_step(tmp_path, lambda disk: durable_file(tmp_path, disk).replace(b"new."), check)


def test_same_object_goes_on_after_a_disk_that_failed_once(tmp_path: Path) -> None:
    for step in range(4):
        disk = CrashingDisk(step)
        file = durable_file(tmp_path, disk)
        with pytest.raises(OSError, match="power"):
            file.replace(b"new.")
        disk.changes_left = 10
        file.replace(b"again.")
        assert file.load() == "again."


@pytest.mark.parametrize("damage", [None, b"", b"half"])
def test_missing_empty_or_damaged_file_is_read_from_its_backup_and_that_is_logged(
    tmp_path: Path, damage: bytes | None, caplog: pytest.LogCaptureFixture
) -> None:
    file = durable_file(tmp_path)
    file.replace(b"one.")
    file.replace(b"two.")
    file.path.unlink() if damage is None else file.path.write_bytes(damage)
    assert durable_file(tmp_path).load() == "one."
    assert "table.json.bak is used, it may be out of date" in caplog.messages[-1]


@pytest.mark.parametrize("load_first", [True, False])
def test_damaged_file_never_takes_the_place_of_a_good_backup(
    tmp_path: Path, load_first: bool
) -> None:
    (tmp_path / "table.json").write_bytes(b"half")
    (tmp_path / "table.json.bak").write_bytes(b"good.")
    file = durable_file(tmp_path)
    if load_first:
        file.load()
    file.replace(b"new.")
    assert file.backup_path.read_bytes() == b"good."
    file.replace(b"newer.")
    assert file.backup_path.read_bytes() == b"new."


def test_damage_without_a_backup_is_an_error_that_names_the_file(tmp_path: Path) -> None:
    file = durable_file(tmp_path)
    file.path.write_bytes(b"half")
    with pytest.raises(DurableFileError, match=r"table\.json: no full stop"):
        file.load()
    file.backup_path.write_bytes(b"too")
    with pytest.raises(DurableFileError, match=r"table\.json: .*; .*table\.json\.bak: "):
        file.load()


def test_empty_file_without_a_backup_counts_as_missing_and_is_logged(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    file = durable_file(tmp_path)
    file.path.write_bytes(b"")
    assert file.load() is None
    assert "table.json is empty" in caplog.messages[-1]


def test_empty_content_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="empty"):
        durable_file(tmp_path).replace(b"")


def test_error_of_the_disk_is_not_taken_for_damage(tmp_path: Path) -> None:
    class BrokenDisk(Disk):
        def read(self, path: Path) -> bytes:
            raise OSError(5, "input/output error", str(path))

    durable_file(tmp_path).replace(b"one.")
    with pytest.raises(OSError, match="input/output"):
        durable_file(tmp_path, BrokenDisk()).load()
