"""Makes durable at start what an earlier process may have left in the page cache.

A process that is killed leaves appended bytes in the page cache, and the kernel may keep them there
for a long time. Recovery reads them as if they were on the disk, so even a log file that recovery
does not have to read can still be lost at a power failure, and must be synced first.
"""

from downrange.runtime.clock import Clock, monotonic_ms
from downrange.runtime.disk import Disk
from downrange.store.checkpoint import Checkpoint, CheckpointFile
from downrange.store.commit_log import CommitLog
from downrange.store.derived_flush import DerivedFlush
from downrange.store.flush import LogFlush
from downrange.store.ownership import LastStop
from downrange.store.recovery import RecoveryReport


class StartSync:
    """Runs once per open, after recovery and before the store takes messages."""

    def __init__(
        self,
        disk: Disk,
        clock: Clock,
        log: CommitLog,
        flush: LogFlush,
        derived: DerivedFlush,
        checkpoint_file: CheckpointFile,
    ) -> None:
        self._disk = disk
        self._clock = clock
        self._log = log
        self._flush = flush
        self._derived = derived
        self._checkpoint_file = checkpoint_file

    def run(
        self, last_stop: LastStop, checkpoint: Checkpoint, report: RecoveryReport, *, is_ours: bool
    ) -> Checkpoint:
        """Sync the log from the first offset in doubt; returns the checkpoint, saved.

        `is_ours` says that the queues are as this program last closed the store. `OSError` if a
        sync fails: then nothing is promised and the store must not open.
        """
        start = durable_start(
            last_stop, checkpoint, report.start_offset, self._log.min_offset, is_ours=is_ours
        )
        self._flush.start_at(start, checkpoint.commit_log_timestamp)
        job = self._flush.begin(report.store_timestamp, monotonic_ms(self._clock))
        if job is not None:
            failure = job.try_run()
            self._flush.finish(job, failure)
            if failure is not None:
                raise failure
        if last_stop is not LastStop.CLEAN or not is_ours:
            # An Apache broker does not sync the names of its files.
            for directory in self._log.chain.directories:
                if self._disk.exists(directory):
                    self._disk.fsync_directory(directory)
            self._derived.doubt_queues(checkpoint.queue_offset)
        checkpoint = self._flush.vouch(checkpoint)
        self._checkpoint_file.save(checkpoint)
        return checkpoint


def durable_start(
    last_stop: LastStop,
    checkpoint: Checkpoint,
    recovered_from: int,
    log_start: int,
    *,
    is_ours: bool,
) -> int:
    """The physical offset below which the log is known to be durable.

    `recovered_from` is where recovery began to read, and to change files.
    """
    if last_stop is LastStop.PROCESS_DIED:
        # Every open saves a checkpoint before the store takes messages, so the one that was found
        # is our own: its confirmed offset was durable when it was written.
        return max(min(checkpoint.confirmed_offset, recovered_from), log_start)
    if last_stop is LastStop.CLEAN and is_ours:
        return recovered_from
    # The machine went down, files were copied here, or an Apache broker was the last owner. Even
    # a graceful shutdown of that broker proves little: after a kill it does not sync older files.
    return log_start
