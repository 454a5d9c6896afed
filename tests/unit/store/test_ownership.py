"""Lock and abort file."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
from unit.store.building import StagedDisk

from downrange.store.errors import StoreLockedError
from downrange.store.ownership import LastStop, Ownership

TAKE_LOCK = """
import fcntl, sys
with open(sys.argv[1], "r+b") as file:
    try:
        fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB, 1, 0)
        print("free")
    except OSError:
        print("taken")
"""


def lock_as_java_would(root: Path) -> str:
    """What FileChannel.tryLock(0, 1, false) meets in another process."""
    command = [sys.executable, "-c", TAKE_LOCK, str(root / "lock")]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()


def test_new_store_was_left_clean(tmp_path: Path, disk: StagedDisk) -> None:
    assert Ownership(disk, tmp_path).take() is LastStop.CLEAN
    assert (tmp_path / "lock").read_bytes() == b"lock"


def test_second_owner_is_told_what_to_do(tmp_path: Path, disk: StagedDisk) -> None:
    first = Ownership(disk, tmp_path)
    first.take()
    with pytest.raises(StoreLockedError, match="in use by another broker; stop that one first"):
        Ownership(disk, tmp_path).take()
    first.release()
    assert disk.open_descriptors == set()
    assert Ownership(disk, tmp_path).take() is LastStop.CLEAN


def test_apache_broker_is_kept_out(tmp_path: Path, disk: StagedDisk) -> None:
    owner = Ownership(disk, tmp_path)
    owner.take()
    assert lock_as_java_would(tmp_path) == "taken"
    owner.release()
    assert lock_as_java_would(tmp_path) == "free"


def test_abort_file_holds_the_process_first_as_java_writes_it(
    tmp_path: Path, disk: StagedDisk
) -> None:
    owner = Ownership(disk, tmp_path)
    owner.take()
    owner.mark_open()
    assert (tmp_path / "abort").read_text() == f"{os.getpid()}\nboot-1\n"
    owner.mark_clean()
    assert not (tmp_path / "abort").exists()


def test_death_of_the_process_is_told_from_that_of_the_machine(
    tmp_path: Path, disk: StagedDisk
) -> None:
    owner = Ownership(disk, tmp_path)
    owner.take()
    owner.mark_open()
    owner.release()
    again = Ownership(disk, tmp_path)
    assert again.take() is LastStop.PROCESS_DIED
    again.release()
    disk.boot = "boot-2"
    assert again.take() is LastStop.UNKNOWN
    again.release()
    disk.boot = ""
    assert again.take() is LastStop.UNKNOWN


@pytest.mark.parametrize("content", [b"", b"4711", b"\xff\xfe", b"4711\n\n"])
def test_abort_file_of_another_program_says_nothing_about_the_machine(
    tmp_path: Path, disk: StagedDisk, content: bytes
) -> None:
    (tmp_path / "abort").write_bytes(content)
    assert Ownership(disk, tmp_path).take() is LastStop.UNKNOWN


def test_release_without_a_lock_does_nothing(tmp_path: Path, disk: StagedDisk) -> None:
    Ownership(disk, tmp_path).release()
