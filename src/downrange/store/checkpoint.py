"""The checkpoint file: up to which time of storing each kind of file is known to be on the disk.

0   commit log      8   store time, ms
8   consume queues  8   store time, ms
16  key index       8   store time of the last message of a finished index file, ms
24  master flushed  8   physical offset, replication only
32  confirmed       8   physical offset below which the log is on the disk (Apache: its end)
40  dispatched      8   physical offset up to which queue entries are on the disk; since 5.5
48  zeros up to 4096
"""

from dataclasses import dataclass
from pathlib import Path
from struct import Struct

from downrange.runtime.disk import Disk

FILE_NAME = "checkpoint"
LAYOUT = Struct(">qqqqqq")
FILE_BYTES = 4096
# A crash may have been busy with messages of the last moments, so recovery goes back this far.
SAFETY_MS = 3_000


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """The values of the file; 0 where nothing is known."""

    commit_log_timestamp: int = 0
    queue_timestamp: int = 0
    index_timestamp: int = 0
    master_flushed_offset: int = 0
    confirmed_offset: int = 0
    queue_offset: int = 0

    @property
    def recovery_timestamp(self) -> int:
        """A message stored before this time is on the disk with its queue entry."""
        return max(0, min(self.commit_log_timestamp, self.queue_timestamp) - SAFETY_MS)


def decode_checkpoint(data: bytes) -> Checkpoint:
    """The values in a file's bytes; a short file says nothing."""
    if len(data) < LAYOUT.size:
        return Checkpoint()
    return Checkpoint(*LAYOUT.unpack_from(data))


def encode_checkpoint(checkpoint: Checkpoint) -> bytes:
    """The whole file."""
    return LAYOUT.pack(
        checkpoint.commit_log_timestamp,
        checkpoint.queue_timestamp,
        checkpoint.index_timestamp,
        checkpoint.master_flushed_offset,
        checkpoint.confirmed_offset,
        checkpoint.queue_offset,
    ).ljust(FILE_BYTES, b"\0")


class CheckpointFile:
    """The file itself; replaced as a whole, so that it is never half written."""

    def __init__(self, disk: Disk, root: Path) -> None:
        self._disk = disk
        self._path = root / FILE_NAME

    def load(self) -> Checkpoint:
        """What the file says; a missing file says nothing."""
        if not self._disk.exists(self._path):
            return Checkpoint()
        return decode_checkpoint(self._disk.read(self._path))

    def save(self, checkpoint: Checkpoint) -> None:
        """Replace the file; durable when this returns."""
        fresh = self._path.with_name("checkpoint.new")
        self._disk.write(fresh, encode_checkpoint(checkpoint))
        self._disk.rename(fresh, self._path)
        self._disk.fsync_directory(self._path.parent)
