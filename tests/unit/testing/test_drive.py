"""What survives a power failure on a simulated drive, and what does not."""

import errno
import random
from collections.abc import Callable
from pathlib import Path

import pytest

from downrange.runtime.disk import Disk
from downrange.testing.drive import (
    PAGE_BYTES,
    SECTOR_BYTES,
    Drive,
    FileSystem,
    PowerLostError,
    Survival,
)
from downrange.testing.simulated_disk import SimulatedDisk

FOLDER = Path("/var/store")
FILE = FOLDER / "file"
SEEDS = range(100)


def new_drive(
    seed: int = 1, file_system: FileSystem = FileSystem.STRICT, write_back: float = 0.0
) -> Drive:
    rng = random.Random(seed)
    drive = Drive(rng, file_system=file_system, write_back_chance=write_back)
    disk = SimulatedDisk(drive)
    disk.make_directory(FOLDER)
    disk.fsync_directory(Path("/"))
    disk.fsync_directory(Path("/var"))
    return drive


def after(drive: Drive, survival: Survival | None = None) -> SimulatedDisk:
    drive.cut_power(survival)
    return SimulatedDisk(drive)


def test_every_operation_of_a_disk_is_simulated() -> None:
    """A new one must not slip past the model to the real file system."""
    public = {name for name in vars(Disk) if not name.startswith("_")}
    assert public - set(vars(SimulatedDisk)) == set()


def test_bytes_without_a_sync_are_lost_and_synced_ones_stay() -> None:
    drive = new_drive()
    disk = SimulatedDisk(drive)
    descriptor = disk.open_file(FILE, create=True)
    disk.truncate(descriptor, 100)
    disk.fsync_directory(FOLDER)
    with disk.map(descriptor, 100) as mapped:
        mapped[:6] = b"synced"
        disk.sync(descriptor)
        mapped[:6] = b"cached"
        disk = after(drive, Survival.NOTHING)
    assert disk.read(FILE)[:6] == b"synced"


def test_dead_process_cannot_touch_what_its_successor_reads() -> None:
    drive = new_drive()
    dead = SimulatedDisk(drive)
    descriptor = dead.open_file(FILE, create=True)
    dead.truncate(descriptor, 10)
    dead.sync(descriptor)
    dead.fsync_directory(FOLDER)
    with dead.map(descriptor, 10) as mapped:
        disk = after(drive)
        mapped[:5] = b"ghost"
    assert disk.read(FILE) == bytes(10)
    for call in (
        lambda: dead.sync(descriptor),
        lambda: dead.read(FILE),
        lambda: dead.write(FILE, b"ghost"),
        lambda: dead.exists(FILE),
    ):
        with pytest.raises(PowerLostError):
            call()
    dead.close_file(descriptor)


def test_dead_process_may_read_its_mapping_of_a_file_that_it_was_cutting() -> None:
    drive = new_drive()
    disk = SimulatedDisk(drive)
    descriptor = disk.open_file(FILE, create=True)
    disk.truncate(descriptor, 2 * PAGE_BYTES)
    with disk.map(descriptor, 2 * PAGE_BYTES) as mapped:
        disk.truncate(descriptor, 10)
        drive.cut_power()
        with pytest.raises(PowerLostError):
            disk.truncate(descriptor, 2 * PAGE_BYTES)
        assert mapped[PAGE_BYTES] == 0  # not a bus error
    disk.end_process()


def test_name_is_lost_until_its_directory_is_synced() -> None:
    drive = new_drive()
    SimulatedDisk(drive).write(FILE, b"bytes are synced, the name is not")
    assert not after(drive, Survival.NOTHING).exists(FILE)


def test_ordered_file_system_keeps_the_name_of_a_new_file_that_was_synced() -> None:
    drive = new_drive(file_system=FileSystem.ORDERED)
    SimulatedDisk(drive).write(FILE, b"as on ext4")
    assert after(drive, Survival.NOTHING).read(FILE) == b"as on ext4"


def test_renamed_and_deleted_files_come_back_until_the_directory_is_synced() -> None:
    drive = new_drive()
    disk = SimulatedDisk(drive)
    for name in ("old", "deleted"):
        disk.write(FOLDER / name, name.encode())
    disk.fsync_directory(FOLDER)
    disk.rename(FOLDER / "old", FOLDER / "new")
    disk.unlink(FOLDER / "deleted")
    disk = after(drive, Survival.NOTHING)
    assert [path.name for path in disk.list_directory(FOLDER)] == ["deleted", "old"]


def survivors(seed: int, file_system: FileSystem) -> set[str]:
    drive = new_drive(seed, file_system)
    disk = SimulatedDisk(drive)
    for name in ("a", "b", "c"):
        descriptor = disk.open_file(FOLDER / name, create=True)
        disk.close_file(descriptor)
    return {path.name for path in after(drive).list_directory(FOLDER)}


def test_names_survive_in_order_or_in_any_combination_as_the_file_system_says() -> None:
    ordered = {frozenset(survivors(seed, FileSystem.ORDERED)) for seed in SEEDS}
    assert ordered == {frozenset("abc"[:end]) for end in range(4)}
    strict = {frozenset(survivors(seed, FileSystem.STRICT)) for seed in SEEDS}
    assert len(strict) == 8


def images(survival: Survival) -> set[tuple[int, ...]]:
    """Which sectors of two pages held new bytes after a power failure, by seed."""
    found = set()
    for seed in SEEDS:
        drive = new_drive(seed)
        disk = SimulatedDisk(drive)
        descriptor = disk.open_file(FILE, create=True)
        disk.truncate(descriptor, 2 * PAGE_BYTES)
        disk.sync(descriptor)
        disk.fsync_directory(FOLDER)
        with disk.map(descriptor, 2 * PAGE_BYTES) as mapped:
            mapped[:] = b"\1" * len(mapped)
            data = after(drive, survival).read(FILE)
        found.add(tuple(data[::SECTOR_BYTES]))
    return found


def test_pages_survive_in_any_combination() -> None:
    new, old = (1,) * 8, (0,) * 8
    assert images(Survival.PAGES) == {new + new, new + old, old + new, old + old}


def test_pages_are_torn_into_sectors() -> None:
    assert len(images(Survival.SECTORS)) > 50


def test_kernel_writes_pages_back_by_itself_in_between() -> None:
    """So a file may hold pages of different ages, none of them the last synced or the newest."""

    def survivor(seed: int) -> int:
        drive = new_drive(seed, write_back=0.1)
        disk = SimulatedDisk(drive)
        descriptor = disk.open_file(FILE, create=True)
        disk.truncate(descriptor, PAGE_BYTES)
        disk.sync(descriptor)
        disk.fsync_directory(FOLDER)
        with disk.map(descriptor, PAGE_BYTES) as mapped:
            for value in range(1, 100):
                mapped[0] = value
                disk.fsync_directory(FOLDER)
            return after(drive, Survival.NOTHING).read(FILE)[0]

    assert any(0 < survivor(seed) < 99 for seed in range(10))


@pytest.mark.parametrize("file_system", FileSystem)
def test_one_seed_gives_one_image(file_system: FileSystem) -> None:
    assert survivors(7, file_system) == survivors(7, file_system)
    assert images(Survival.SECTORS) == images(Survival.SECTORS)


def test_power_fails_in_the_midst_of_a_write() -> None:
    seen = set()
    for fatal in range(1, 4):
        for seed in range(20):
            drive = new_drive(seed)
            disk = SimulatedDisk(drive)
            disk.write(FILE, b"old!")
            disk.fsync_directory(FOLDER)
            drive.before_step.append(cut_at(drive, fatal))
            with pytest.raises(PowerLostError):
                disk.write(FILE, b"new!")
            drive.before_step.clear()
            seen.add(SimulatedDisk(drive).read(FILE))
    assert seen >= {b"old!", b"ne", b"new!"}
    assert seen <= {b"old!", b"ol", b"ne", b"ne\0\0", b"new!"}


def cut_at(drive: Drive, fatal: int) -> Callable[[str, Path], None]:
    steps = iter(range(1, 1_000))

    def told(_operation: str, _path: Path) -> None:
        if next(steps) == fatal:
            drive.cut_power()

    return told


def test_hook_fails_single_calls() -> None:
    drive = new_drive()

    def full(operation: str, _path: Path) -> None:
        if operation == "write":
            raise OSError(errno.ENOSPC, "full")

    drive.before_step.append(full)
    with pytest.raises(OSError, match="full"):
        SimulatedDisk(drive).write(FILE, b"x")


def test_second_opener_is_locked_out_until_the_first_closes_or_dies() -> None:
    drive = new_drive()
    disk = SimulatedDisk(drive)
    first, second = disk.open_file(FILE, create=True), disk.open_file(FILE, create=True)
    disk.lock(first)
    with pytest.raises(BlockingIOError):
        disk.lock(second)
    disk.close_file(first)
    disk.lock(second)
    disk.fsync_directory(FOLDER)
    next_boot = after(drive)
    third = next_boot.open_file(FILE, create=False)
    next_boot.lock(third)
    disk.close_file(second)
    next_boot.close_file(third)


def act(disk: Disk, root: Path, rng: random.Random) -> object:
    """One call drawn at random, on few names; its answer, or the kind of its error."""
    path, other = root / rng.choice("abc"), root / rng.choice("abc")
    data = rng.randbytes(rng.randrange(1, 9_000))
    calls: list[Callable[[], object]] = [
        lambda: disk.write(path, data),
        lambda: disk.read(path),
        lambda: disk.rename(path, other),
        lambda: disk.unlink(path),
        lambda: disk.exists(path),
        lambda: disk.size(path),
        lambda: [name.name for name in disk.list_directory(root)],
        lambda: disk.make_directory(root / "d" / "e"),
        lambda: disk.remove_directory(root / "d" / "e"),
        lambda: disk.remove_directory(root / "d"),
        lambda: resize(disk, path, len(data)),
    ]
    try:
        return rng.choice(calls)()
    except OSError as error:
        return type(error), error.errno


def resize(disk: Disk, path: Path, size: int) -> bytes:
    descriptor = disk.open_file(path, create=size % 2 == 0)
    disk.truncate(descriptor, size)
    disk.allocate(descriptor, size, 100)
    with disk.map(descriptor, size) as mapped:
        mapped[size // 2] = 7
    disk.sync(descriptor)
    disk.close_file(descriptor)
    return disk.read(path)


def test_it_answers_as_the_real_file_system_does(tmp_path: Path) -> None:
    for seed in range(5):
        real, simulated = random.Random(seed), random.Random(seed)
        root = tmp_path / str(seed)
        root.mkdir()
        disk = SimulatedDisk(new_drive(seed))
        for number in range(80):
            expected = act(Disk(), root, real)
            assert act(disk, FOLDER, simulated) == expected, (seed, number)
