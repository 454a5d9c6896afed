"""Notices when messages stay invisible for too long, so that no more of them are acknowledged."""

import logging
from collections.abc import Callable

from downrange.runtime.clock import Clock
from downrange.store.dispatcher import Dispatcher

_log = logging.getLogger(__name__)


class DispatchWatch:
    """Runs the dispatcher and remembers what is wrong. Owned by the store's thread.

    `failure` is the error that the disk reports now, `stall` the reason why sends are refused:
    messages have been waiting for longer than the limit, or so many that no more are kept. Both are
    taken back when dispatch has caught up.
    """

    def __init__(
        self,
        dispatcher: Dispatcher,
        clock: Clock,
        stall_ms: int,
        on_change: Callable[[], None],
    ) -> None:
        self._on_change = on_change  # called when `stall` begins and ends
        self._dispatcher = dispatcher
        self._monotonic_s = clock.monotonic_s
        self._stall_s = stall_ms / 1000
        self._failed_since_s: float | None = None
        self.failure: OSError | None = None
        self.stall: str | None = None

    @property
    def is_behind(self) -> bool:
        """Whether messages wait for something other than their own durability."""
        return self.failure is not None or bool(self._dispatcher.backlog)

    def run(self, limit_offset: int, count_max: int) -> int:
        """Dispatch as `Dispatcher.dispatch_some` does; an error is noted and not raised."""
        count = 0
        error: OSError | None = None
        try:
            count = self._dispatcher.dispatch_some(limit_offset, count_max)
        except OSError as caught:
            error = caught
        if error is not None or self.failure is not None or self._dispatcher.backlog:
            self._note(error)
        elif self.stall is not None:
            self._end_stall()
        return count

    def _note(self, error: OSError | None) -> None:
        now_s = self._monotonic_s()
        backlog = self._dispatcher.backlog
        if error is None:
            self._failed_since_s = None
        elif self._failed_since_s is None:
            self._failed_since_s = now_s
        failure = error or backlog.failure
        if failure is not None and self.failure is None:
            _log.error("dispatch: messages wait to become visible: %s", failure)
        elif failure is None and self.failure is not None:
            _log.warning("dispatch: the disk takes the waiting messages again")
        self.failure = failure
        since_s = min((s for s in (backlog.since_s, self._failed_since_s) if s is not None),
                      default=None)  # fmt: skip
        if since_s is None:
            if self.stall is not None:
                self._end_stall()
            return
        waited_s = now_s - since_s
        if self.stall is None and (waited_s >= self._stall_s or backlog.is_full):
            cause = failure or "queue files are not synced fast enough"
            self.stall = (
                f"{self._dispatcher.pending_count} messages wait to become visible, the oldest for "
                f"{waited_s:.0f} s: {cause}; check disk space, the disk, and the limit of open "
                f"files; sending resumes by itself"
            )
            _log.error("dispatch stalled, sends are refused: %s", self.stall)
            self._on_change()

    def _end_stall(self) -> None:
        self.stall = None
        _log.warning("dispatch has caught up, sends are accepted again")
        self._on_change()
