"""Marks a store as in use: the lock keeps others out, the abort file tells of a crash.

`lock` holds the text "lock" as RocketMQ's does. `abort` exists while the store is open; RocketMQ
writes the process id into it, to which we add a line with the machine's boot id. If the boot id is
still the same at the next start, the machine did not go down: everything the process had written
is in the page cache, and derived files can be trusted further than after a loss of power.
"""

import logging
import os
from enum import Enum
from pathlib import Path

from downrange.runtime.disk import Disk
from downrange.store.errors import StoreLockedError

_log = logging.getLogger(__name__)


class LastStop(Enum):
    """How the store was left the last time."""

    CLEAN = "closed in order"
    PROCESS_DIED = "the process died, the machine did not"
    UNKNOWN = "the machine went down, or another program left it so"


class Ownership:
    """Holds the lock from `take` to `release`."""

    def __init__(self, disk: Disk, root: Path) -> None:
        self._disk = disk
        self._lock_path = root / "lock"
        self._abort_path = root / "abort"
        self._descriptor: int | None = None

    def take(self) -> LastStop:
        """Lock the store and mark it as open; `StoreLockedError` if another process has it."""
        descriptor = self._disk.open_file(self._lock_path, create=True)
        try:
            self._disk.lock(descriptor)
        except OSError as error:
            self._disk.close_file(descriptor)
            if not isinstance(error, BlockingIOError | PermissionError):
                raise
            raise StoreLockedError(
                f"{self._lock_path.parent} is in use by another broker; stop that one first, or "
                f"give this one a store of its own"
            ) from error
        self._descriptor = descriptor
        # Written through the descriptor that holds the lock: a POSIX lock is lost when any
        # descriptor of its file is closed.
        self._disk.write_at(descriptor, b"lock", 0)
        return self._last_stop()

    def mark_open(self) -> None:
        """From here on a death of the process is a crash."""
        text = f"{os.getpid()}\n{self._disk.boot_id()}\n"
        self._disk.write(self._abort_path, text.encode())
        self._disk.fsync_directory(self._abort_path.parent)

    def mark_doubtful(self) -> None:
        """The page cache no longer proves what was written: have the next start read the log.

        If not even this can be written, recovery still compares the newest entry of each queue.
        """
        try:
            self._disk.write(self._abort_path, f"{os.getpid()}\n".encode())
        except OSError as error:
            _log.error("%s cannot be written: %s", self._abort_path, error)

    def mark_clean(self) -> None:
        """Everything is on the disk."""
        self._disk.unlink(self._abort_path)
        self._disk.fsync_directory(self._abort_path.parent)

    def release(self) -> None:
        """Let others in."""
        if self._descriptor is not None:
            self._disk.close_file(self._descriptor)
            self._descriptor = None

    def _last_stop(self) -> LastStop:
        if not self._disk.exists(self._abort_path):
            return LastStop.CLEAN
        lines = self._disk.read(self._abort_path).decode("utf-8", "replace").splitlines()
        boot_id = self._disk.boot_id()
        if boot_id and lines[1:2] == [boot_id]:
            return LastStop.PROCESS_DIED
        return LastStop.UNKNOWN
