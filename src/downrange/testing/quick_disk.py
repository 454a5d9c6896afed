"""A disk that promises nothing beyond the life of the machine, for data that a test throws away."""

import os
from pathlib import Path

from downrange.runtime.disk import Disk


class QuickDisk(Disk):
    """Writes and never syncs: what is written survives the process, which is all a test can see."""

    def write(self, path: Path, data: bytes) -> None:
        """Create or replace a small file."""
        path.write_bytes(data)

    def fsync_directory(self, path: Path) -> None:
        """Only see that it is there, as a sync would."""
        os.close(os.open(path, os.O_RDONLY))

    def sync(self, descriptor: int) -> None:
        """Only see that it is open."""
        os.fstat(descriptor)
