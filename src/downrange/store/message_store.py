"""The store as its user sees it: one object that builds the parts and hands each call to one.

Passive: nothing happens here by itself. Who owns the store calls `dispatch_some` after appends,
runs flush jobs in a thread of its choice, and calls `expire_some` now and then.
"""

import logging
from collections.abc import Container
from dataclasses import replace

from downrange.protocol.delay_levels import DelayLevels
from downrange.runtime.clock import Clock, SystemClock, monotonic_ms
from downrange.runtime.disk import Disk, make_durable_directory
from downrange.store.appender import Appender
from downrange.store.checkpoint import Checkpoint, CheckpointFile
from downrange.store.commit_log import CommitLog
from downrange.store.deleted_topics import DeletedTopics
from downrange.store.derived_flush import DerivedFlush, DerivedFlushJob
from downrange.store.disk_watch import DiskWatch
from downrange.store.dispatch_backlog import DispatchBacklog
from downrange.store.dispatch_entry import EntryReader
from downrange.store.dispatch_watch import DispatchWatch
from downrange.store.dispatcher import ArrivalListener, Dispatcher
from downrange.store.errors import AppendRefusedError, PutStatus, StoreUnavailableError
from downrange.store.flush import FlushJob, FlushWaiters, LogFlush, Release
from downrange.store.key_index import KeyIndex
from downrange.store.lookup import Lookup
from downrange.store.manifest import ManifestFile, is_as_left, known_positions
from downrange.store.missing_log import MissingLog
from downrange.store.ownership import LastStop, Ownership
from downrange.store.queue_table import QueueTable
from downrange.store.reader import QueueReader
from downrange.store.recovery import Recovery, RecoveryReport
from downrange.store.recovery_plan import RecoveryPlanner
from downrange.store.refusal import refusal_of
from downrange.store.repair import EntryRepair
from downrange.store.retention import Retention
from downrange.store.scrubber import Scrubber
from downrange.store.settings import FlushMode, StoreSettings
from downrange.store.start_sync import StartSync
from downrange.store.store_files import StoreFiles

_log = logging.getLogger(__name__)


class MessageStore:
    """A store directory, open from `open` to `close`. Owned by one thread.

    `append`, `append_run`, `append_batch` and `read` are the parts' own methods, bound here without
    a wrapper, because they are called for every message.
    """

    def __init__(
        self, settings: StoreSettings, disk: Disk | None = None, clock: Clock | None = None
    ) -> None:
        self.settings = settings
        self._disk = disk = disk or Disk()
        self._clock = clock = clock or SystemClock()
        self._files = files = StoreFiles.of(disk, settings.open_files_max)
        self.dirty_files = files.dirty
        self.log = CommitLog(files, settings)
        self.queues = QueueTable(files, settings)
        self.index = KeyIndex(files, clock, settings) if settings.index_enabled else None
        self.entries = entries = EntryReader(DelayLevels.parse(settings.delay_levels))
        self._dispatcher = Dispatcher(
            self.log, self.queues, self.index, entries, clock, DispatchBacklog(files.dirty)
        )
        stall_ms = settings.dispatch_stall_ms
        self._dispatch = DispatchWatch(self._dispatcher, clock, stall_ms, self._refresh_refusal)
        self._appender = Appender(self.log, self.queues, self._dispatcher, entries, clock, settings)
        self.repair = EntryRepair(self.log, entries)
        self._reader = QueueReader(self.log, self.queues, self.repair, settings)
        self.lookup = Lookup(self.log, self.queues, self.index, settings.read.query_count_max)
        self._flush = LogFlush(self.log, settings.flush)
        self._checkpoint_file = CheckpointFile(disk, settings.root)
        self._ownership = own = Ownership(disk, settings.root)
        self._derived_flush = DerivedFlush(
            files.dirty, self.queues, self.index, self._checkpoint_file, own.mark_doubtful
        )
        self._waiters = FlushWaiters()
        watch = DiskWatch(disk, settings.log_paths.writable, settings.consume_queue_path)
        self.retention = Retention(
            disk, clock, self.log, self.queues, self.index, watch, settings.retention
        )
        self.scrubber = Scrubber(disk, clock, self.log, self.queues, settings, self._dispatcher)
        self._manifest_file = ManifestFile(disk, settings.root)
        self._deleted = DeletedTopics(disk, settings.root)
        self.checkpoint = Checkpoint()
        self.last_stop = LastStop.CLEAN
        self._is_open = False
        self._is_wanted = True
        self._refresh_refusal()
        self.append = self._appender.append
        self.append_run = self._appender.append_run
        self.append_batch = self._appender.append_batch
        self.read = self._reader.read

    def open(self) -> RecoveryReport:
        """Lock the directory, recover what is there, and take messages from here on.

        `StoreLockedError` if another process has it, `StoreDamagedError` if the files cannot be a
        store with these settings; in both cases nothing was changed. `StoreUnavailableError` if
        the disk does not let it be read or written. It may run in another thread than the owner's,
        who must not touch the store meanwhile but to call `give_up`.
        """
        try:
            return self._open()
        except OSError as error:
            raise StoreUnavailableError(
                f"{self.settings.root} cannot be opened as a store: {error}"
            ) from error

    @property
    def is_open(self) -> bool:
        """Whether it serves, from `open` to `close`."""
        return self._is_open

    @property
    def refusal(self) -> AppendRefusedError | None:
        """Why no message is taken at the moment; asks the disk if the last one found no room."""
        return self._appender.refusal or self._appender.no_room()

    @property
    def flush_failure(self) -> OSError | None:
        """Why the log is not made durable any more."""
        return self._flush.failure

    def give_up(self) -> None:
        """Have a running `open` end soon with `StoreGivenUpError`; for any thread."""
        self._is_wanted = False

    def _open(self) -> RecoveryReport:
        settings = self.settings
        make_durable_directory(self._disk, settings.root)
        self.dirty_files.may_block = True  # nobody is served yet
        try:
            self.last_stop = self._ownership.take()
            report = self._recover()
            self._ownership.mark_open()
            self.retention.start(self.checkpoint.commit_log_timestamp)
            self.retention.look_at_disk()
        except BaseException:
            self._unmap()
            raise
        self.dirty_files.may_block = False
        self._is_open = True
        self._refresh_refusal()
        return report

    def close(self) -> None:
        """Dispatch and flush what is there, leave the directory as a clean stop leaves it.

        After an I/O error the abort file stays, so that the next start reads the log again.
        """
        if not self._is_open:
            return
        self._is_open = False
        self._refresh_refusal()
        self.dirty_files.may_block = True
        try:
            if self.flush_now() and self._dispatch_all() and self._flush_derived_now():
                self._save_manifest()
                self._ownership.mark_clean()
        except OSError as error:
            _log.error("not closed in order, the next start reads the log again: %s", error)
        finally:
            self._waiters.fail_all(PutStatus.SHUT_DOWN)
            self._unmap()

    def abandon(self) -> None:
        """Let go of the files as they are, as if the process had died: for tests of what follows.

        Who waits for the disk hears nothing.
        """
        if self._is_open:
            self._is_open = False
            self._refresh_refusal()
            self._unmap()

    # --- dispatch --------------------------------------------------------------------------

    def add_listener(self, listener: ArrivalListener, topics: Container[str] | None = None) -> None:
        """Have `listener` called for every message, of these topics, that becomes visible."""
        self._dispatcher.add_listener(listener, topics)

    def dispatch_some(self, count_max: int = 10_000) -> int:
        """Make appended messages visible, in SYNC mode only durable ones; returns how many.

        What the disk does not take is left for the next call; `dispatch_failure` says why.
        """
        limit = self.log.max_offset
        if self.settings.flush.mode is FlushMode.SYNC:
            limit = self._flush.durable_offset
        return self._dispatch.run(limit, count_max)

    @property
    def dispatch_failure(self) -> OSError | None:
        """Why messages do not become visible at the moment."""
        return self._dispatch.failure

    @property
    def is_dispatch_behind(self) -> bool:
        """Whether messages wait for the disk to become visible: call `dispatch_some` again."""
        return self._dispatch.is_behind

    @property
    def pending_count(self) -> int:
        """How many messages wait to become visible, as far as they are in memory."""
        return self._dispatcher.pending_count

    @property
    def dispatched_offset(self) -> int:
        """Physical offset up to which consumers can see."""
        return self._dispatcher.offset

    def change(self, settings: StoreSettings) -> None:
        """Follow other limits and rules from now on; places, sizes and the flush mode stay."""
        flush = replace(settings.flush, mode=self.settings.flush.mode)
        self.settings = replace(
            self.settings,
            message_bytes_max=settings.message_bytes_max,
            page_cache_busy_ms=settings.page_cache_busy_ms,
            flush=flush,
            retention=settings.retention,
        )
        self._appender.change(self.settings)
        self._flush.settings = flush
        self.retention.change(settings.retention)

    # --- durability ------------------------------------------------------------------------

    @property
    def durable_offset(self) -> int:
        """Physical offset below which everything is on the disk."""
        return self._flush.durable_offset

    def flush_is_due(self) -> bool:
        """Whether ASYNC mode should sync the log now."""
        return self._flush.is_due(monotonic_ms(self._clock))

    def begin_flush(self) -> FlushJob | None:
        """The work that makes everything appended so far durable; run it in any thread."""
        return self._flush.begin(self._appender.store_timestamp, monotonic_ms(self._clock))

    def finish_flush(self, job: FlushJob, failure: OSError | None = None) -> None:
        """Take note of a finished job: free who waited, or turn read-only for good."""
        self._flush.finish(job, failure)
        if self._flush.failure is not None:
            _log.error("the store is read-only, the log could not be synced: %s", failure)
            self._refresh_refusal()
            self._waiters.fail_all(PutStatus.NOT_WRITABLE)
            return
        self._waiters.release(self._flush.durable_offset)

    def flush_now(self) -> bool:
        """Sync the log here and now; False if it could not be."""
        job = self.begin_flush()
        if job is not None:
            self.finish_flush(job, job.try_run())
        # A job that another thread has under way has proved nothing yet.
        return self._flush.failure is None and self.durable_offset >= self.log.max_offset

    def wait_durable(self, end_offset: int, release: Release, count: int = 1) -> None:
        """Have `release` called with PUT_OK once `end_offset` is durable, or with the reason.

        It answers `count` senders.
        """
        if self._flush.failure is not None:
            release(PutStatus.NOT_WRITABLE)
        elif end_offset <= self._flush.durable_offset:
            release(PutStatus.PUT_OK)
        else:
            deadline_ms = monotonic_ms(self._clock) + self.settings.flush.sync_timeout_ms
            self._waiters.add(end_offset, deadline_ms, release, count)

    @property
    def waiting_count(self) -> int:
        """How many wait for something to become durable."""
        return len(self._waiters)

    def expire_waiters(self) -> int:
        """Tell who has waited too long; returns how many."""
        return self._waiters.expire(monotonic_ms(self._clock))

    def begin_derived_flush(self) -> DerivedFlushJob:
        """The work that makes queues and index durable; run it in any thread."""
        of_log = self._flush.vouch(self.checkpoint)
        dispatcher = self._dispatcher
        return self._derived_flush.begin(dispatcher.offset, dispatcher.store_timestamp, of_log)

    def finish_derived_flush(self, job: DerivedFlushJob, failure: OSError | None = None) -> bool:
        """Take note of a finished job; False if it failed."""
        if not self._derived_flush.finish(job, failure):
            return False
        self.checkpoint = job.checkpoint
        return True

    # --- retention -------------------------------------------------------------------------

    def expire_some(self) -> int:
        """Delete what has expired and measure the disk; returns how many log files went."""
        settled_offset = min(self._flush.durable_offset, self._dispatcher.offset)
        dropped = self.retention.expire_some(settled_offset)
        self._refresh_refusal()
        return dropped

    def delete_topic(self, topic: str) -> int:
        """Forget the queues of a topic, for good when this returns; returns how many there were.

        `OSError` if that fails; the topic is then as it was, or deleted by the next start.
        """
        if self.queues.of_topic(topic):
            self._deleted.record(topic, self.log.max_offset, self.log.min_offset)
            self._dispatcher.forget_topic(topic)
        return self.queues.delete_topic(topic)

    # --- inside ----------------------------------------------------------------------------

    def _recover(self) -> RecoveryReport:
        self.checkpoint, manifest = self._checkpoint_file.load(), self._manifest_file.load()
        self.log.load()
        missing = MissingLog(self._disk, self._clock, self.settings)
        if missing.prepare(self.log, self.checkpoint, manifest):
            self.checkpoint, manifest = Checkpoint(), None
        self.queues.load(known_positions(manifest, self.log, self.last_stop))
        missing.check_end(self.log, self.queues, self.checkpoint)
        index_removed = bool(self.index.load()) if self.index is not None else False
        self._deleted.load(manifest)
        self._deleted.finish(self.queues)
        manifest = self._deleted.current(manifest)
        if manifest is not None:
            manifest.watch(self.queues, self.repair.check_file)
        plan = RecoveryPlanner(self.log, self.queues, self.index).plan(
            self.last_stop,
            self.checkpoint,
            manifest,
            self._deleted.below,
            index_removed=index_removed,
            check_crc=self.settings.check_crc_on_recover,
            check_whole=self.settings.checks_whole_records,
        )
        report = Recovery(
            self.log, self.queues, self.index, self.entries, lambda: self._is_wanted
        ).run(plan)
        self._dispatcher.start_at(report.end_offset, report.store_timestamp)
        self._deleted.settle(self.log.min_offset, report.end_offset)
        self._dispatcher.deleted_below = self._deleted.below
        self._appender.store_timestamp = report.store_timestamp
        self.checkpoint = StartSync(
            self._disk,
            self._clock,
            self.log,
            self._flush,
            self._derived_flush,
            self._checkpoint_file,
        ).run(self.last_stop, self.checkpoint, report, is_ours=is_as_left(manifest, self.queues))
        _log.info("recovered %s (%s): %s", self.settings.root, self.last_stop.value, report)
        return report

    def _save_manifest(self) -> None:
        min_offset = self.log.min_offset
        deleted_below = self._dispatcher.deleted_below.items()
        self._manifest_file.save(
            self.queues,
            self.index,
            {topic: offset for topic, offset in deleted_below if offset > min_offset},
            min_offset,
            self.log.max_offset,
        )

    def _dispatch_all(self) -> bool:
        while self._dispatcher.offset < self.log.max_offset:
            if not self.dispatch_some():
                return False
        return True

    def _flush_derived_now(self) -> bool:
        while True:
            job = self.begin_derived_flush()
            if not self.finish_derived_flush(job, job.try_run()):
                return False
            if job.batch.is_all:
                return self._derived_flush.failure is None

    def _refresh_refusal(self) -> None:
        self._appender.refusal = refusal_of(
            is_open=self._is_open,
            is_slave=self.settings.is_slave,
            sync_failure=self._flush.failure,
            disk_state=self.retention.disk_state,
            dispatch_stall=self._dispatch.stall,
        )

    def _unmap(self) -> None:
        self.log.close()
        self.queues.close()
        if self.index is not None:
            self.index.close()
        self._files.close()
        self._ownership.release()
