"""What is refused when the broker cannot keep up, and how the peer is told.

One event loop serves everybody, so nothing queues for a thread. What can pile up is who waits:
sends for the disk, pulls for messages, requests for the answer of somebody else, and requests that
were read for those before them. Each has a bound under the name that RocketMQ gives it; beyond it
the answer is SYSTEM_BUSY: clients try again later or elsewhere.
"""

import inspect
from collections.abc import Callable, Mapping

from downrange.broker.settings import BrokerSettings
from downrange.protocol.command import Command
from downrange.protocol.response_codes import ResponseCode
from downrange.remoting.connection import Answer, Connection, Handler
from downrange.remoting.errors import Refused
from downrange.runtime.loop_watch import LoopWatch

ROOM_MAX = 1 << 30


def overloaded(what: str) -> Refused:
    """The answer to a request for which there is no room."""
    return Refused(
        ResponseCode.SYSTEM_BUSY, f"[OVERLOAD]system busy, start flow control for a while: {what}"
    )


class WaitLimit:
    """How long a request that was read may wait until it is served. Owned by the event loop.

    RocketMQ counts the same: from reading a request to serving it. What waits here is what was read
    in one turn of the loop, so the wait of a request is the time for which those before it have
    been served. A pause is not a wait: it is over when the next request is looked at, and refusing
    would help nobody. So no single step counts for more than half of the limit (`LoopWatch`), and
    requests are refused only where many slow ones are before them. What waits unread in the kernel
    is not counted, as in RocketMQ: it has been read by nobody.
    """

    def __init__(self, watch: LoopWatch, setting: str, waiting: Callable[[], int]) -> None:
        self._watch = watch
        self._setting = setting
        self._waiting = waiting
        self.wait_s_max = float("inf")

    @property
    def is_exceeded(self) -> bool:
        """Whether the request that is served now has waited too long."""
        return self._watch.busy_s > self.wait_s_max

    def refusal(self) -> Refused:
        """What to answer then, in RocketMQ's words."""
        return Refused(
            ResponseCode.SYSTEM_BUSY,
            "[TIMEOUT_CLEAN_QUEUE]broker busy, start flow control for a while, "
            f"period in queue: {self._watch.busy_s * 1000:.0f}ms, size of queue: {self._waiting()};"
            f" {self._setting} is {self.wait_s_max * 1000:.0f}",
        )


class Gate:
    """Whether requests of one kind are taken at the moment. Owned by the event loop.

    `is_closed` is looked at for every request. `close` and `open` are called by whoever finds that
    there is too much or enough room again; `room` is how many may still come before it closes.
    """

    def __init__(self, wait: WaitLimit) -> None:
        self.wait = wait
        self.room = ROOM_MAX
        self._remarks: dict[str, str] = {}

    @property
    def is_closed(self) -> bool:
        """Whether the request that is served now has to be refused."""
        return bool(self._remarks) or self.wait.is_exceeded

    def close(self, cause: str, remark: str) -> None:
        """Refuse with this text from now on, until `open` is called for the same cause."""
        self._remarks[cause] = remark

    def open(self, cause: str) -> None:
        """This cause is gone; others may be left."""
        self._remarks.pop(cause, None)

    def refusal(self) -> Refused:
        """What to answer while the gate is closed."""
        if self._remarks:
            return Refused(ResponseCode.SYSTEM_BUSY, "; ".join(self._remarks.values()))
        return self.wait.refusal()


class WaitingSends:
    """Keeps the gate of the sends by the number of those that wait for the disk."""

    def __init__(self, gate: Gate, capacity: int) -> None:
        self._gate = gate
        self.capacity = capacity
        self.count = 0
        self._is_full = False

    def note(self, count: int) -> None:
        """So many wait now."""
        was_full, self._is_full = self._is_full, count >= self.capacity
        self.count = count
        self._gate.room = max(self.capacity - count, 0)
        if self._is_full:
            if not was_full:
                refusal = overloaded(
                    f"{count} sends wait for the disk, sendThreadPoolQueueCapacity is "
                    f"{self.capacity}"
                )
                self._gate.close("disk", refusal.remark)
        elif was_full:
            self._gate.open("disk")


class WaitingRoom:
    """Counts requests of one kind that wait for the answer of somebody else, on all connections."""

    def __init__(self, what: str, setting: str, capacity: int) -> None:
        self._what = what
        self._setting = setting
        self.capacity = capacity
        self.count = 0

    def bound(self, routes: Mapping[int, Handler]) -> dict[int, Handler]:
        """The same routes; those that may wait are refused when the room is full."""
        return {
            code: self._bounded(handler) if inspect.iscoroutinefunction(handler) else handler
            for code, handler in routes.items()
        }

    def _bounded(self, handler: Handler) -> Handler:
        async def serve(request: Command, connection: Connection) -> Answer:
            if self.count >= self.capacity:
                raise overloaded(
                    f"{self.count} {self._what} wait for an answer, {self._setting} is "
                    f"{self.capacity}"
                )
            self.count += 1
            try:
                answer = handler(request, connection)
                assert inspect.iscoroutine(answer)
                result: Answer = await answer
            finally:
                self.count -= 1
            return result

        return serve


class Protection:
    """All bounds of one broker. Owned by its event loop."""

    def __init__(self, settings: BrokerSettings, watch: LoopWatch) -> None:
        self._watch = watch
        self.sends = Gate(WaitLimit(watch, "waitTimeMillsInSendQueue", self._waiting_sends))
        self.pulls = Gate(WaitLimit(watch, "waitTimeMillsInPullQueue", self._waiting_sends))
        self.waiting_sends = WaitingSends(self.sends, settings.waiting_sends_max)
        self.replies = WaitingRoom(
            "replies", "replyThreadPoolQueueCapacity", settings.waiting_replies_max
        )
        self.admin = WaitingRoom(
            "admin requests", "adminBrokerThreadPoolQueueCapacity", settings.waiting_admin_max
        )
        self.assignments = WaitingRoom(
            "requests for an assignment",
            "loadBalanceThreadPoolQueueCapacity",
            settings.waiting_assignments_max,
        )
        self._set_wait_limits(settings)

    @property
    def late_ms(self) -> int:
        """How late the event loop came to its last tick."""
        return int(self._watch.late_s * 1000)

    def change(self, settings: BrokerSettings) -> None:
        """Follow other bounds from now on."""
        self._set_wait_limits(settings)
        self.waiting_sends.capacity = settings.waiting_sends_max
        self.waiting_sends.note(self.waiting_sends.count)

    def _waiting_sends(self) -> int:
        return self.waiting_sends.count

    def _set_wait_limits(self, settings: BrokerSettings) -> None:
        if not settings.fails_fast:
            self.sends.wait.wait_s_max = self.pulls.wait.wait_s_max = float("inf")
            return
        self.sends.wait.wait_s_max = settings.send_wait_ms_max / 1000
        self.pulls.wait.wait_s_max = settings.pull_wait_ms_max / 1000
        self._watch.lap_s_counted = min(settings.send_wait_ms_max, settings.pull_wait_ms_max) / 2000
