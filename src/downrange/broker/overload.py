"""What is refused when the broker cannot keep up, and how the peer is told.

One event loop serves everybody, so nothing queues for a thread. What can pile up is who waits:
sends for the disk, pulls for messages, requests for the answer of somebody else. And if a turn of
the loop takes long, what producers have sent waits unread. Each has a bound under the name that
RocketMQ gives it; beyond it the answer is SYSTEM_BUSY: clients try again later or elsewhere.
"""

import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from downrange.broker.settings import BrokerSettings
from downrange.protocol.command import Command
from downrange.protocol.response_codes import ResponseCode
from downrange.remoting.connection import Answer, Connection, Handler
from downrange.remoting.errors import Refused

ROOM_MAX = 1 << 30
TICK_S = 0.05  # between two looks at the loop's own delay


def overloaded(what: str) -> Refused:
    """The answer to a request for which there is no room."""
    return Refused(
        ResponseCode.SYSTEM_BUSY, f"[OVERLOAD]system busy, start flow control for a while: {what}"
    )


class Gate:
    """Whether requests of one kind are taken at the moment. Owned by the event loop.

    `is_closed` is looked at for every request, so it is a plain attribute, kept by whoever finds
    that there is too much or enough room again. `room` is how many may still come before it closes.
    """

    def __init__(self) -> None:
        self.is_closed = False
        self.room = ROOM_MAX
        self._remarks: dict[str, str] = {}

    def close(self, cause: str, remark: str) -> None:
        """Refuse with this text from now on, until `open` is called for the same cause."""
        self._remarks[cause] = remark
        self.is_closed = True

    def open(self, cause: str) -> None:
        """This cause is gone; others may be left."""
        self._remarks.pop(cause, None)
        self.is_closed = bool(self._remarks)

    def refusal(self) -> Refused:
        """What to answer while the gate is closed."""
        return Refused(ResponseCode.SYSTEM_BUSY, "; ".join(self._remarks.values()))


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


@dataclass(frozen=True, slots=True)
class Patience:
    """How late the loop may be before requests of one kind are refused."""

    gate: Gate
    setting: str
    wait_ms_max: int


class LoopLag:
    """Measures how late the event loop comes to what is due, and closes gates when it stays late.

    `tick` is called every `TICK_S`. One late call is a hiccup: what waited is served. Two in a row
    mean that requests come in faster than they are served; then those are refused that have waited
    longer than their patience, which is as long as RocketMQ leaves them in a queue.
    """

    def __init__(
        self,
        now_s: Callable[[], float],
        waiting: Callable[[], int],
        patiences: tuple[Patience, ...],
    ) -> None:
        self._now_s = now_s
        self._waiting = waiting
        self._patiences = patiences
        self._due_s = now_s() + TICK_S
        self._last_late_ms = 0
        self.late_ms = 0

    def change(self, patiences: tuple[Patience, ...]) -> None:
        """Follow other bounds from now on."""
        for patience in self._patiences:
            patience.gate.open("late")
        self._patiences = patiences

    def tick(self) -> None:
        """Look at the clock."""
        now_s = self._now_s()
        self._last_late_ms = self.late_ms
        self.late_ms = max(int((now_s - self._due_s) * 1000), 0)
        self._due_s = now_s + TICK_S
        lasting_ms = min(self.late_ms, self._last_late_ms)
        for patience in self._patiences:
            if lasting_ms >= patience.wait_ms_max:
                patience.gate.close(
                    "late",
                    "[TIMEOUT_CLEAN_QUEUE]broker busy, start flow control for a while, "
                    f"period in queue: {lasting_ms}ms, size of queue: {self._waiting()}; the event "
                    f"loop is late, {patience.setting} is {patience.wait_ms_max}",
                )
            elif patience.gate.is_closed:
                patience.gate.open("late")


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

    def __init__(self, settings: BrokerSettings, now_s: Callable[[], float]) -> None:
        self.sends = Gate()
        self.pulls = Gate()
        self.waiting_sends = WaitingSends(self.sends, settings.waiting_sends_max)
        self.lag = LoopLag(now_s, lambda: self.waiting_sends.count, self._patiences(settings))
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

    def change(self, settings: BrokerSettings) -> None:
        """Follow other bounds from now on."""
        self.lag.change(self._patiences(settings))
        self.waiting_sends.capacity = settings.waiting_sends_max
        self.waiting_sends.note(self.waiting_sends.count)

    def _patiences(self, settings: BrokerSettings) -> tuple[Patience, ...]:
        if not settings.fails_fast:
            return ()
        return (
            Patience(self.sends, "waitTimeMillsInSendQueue", settings.send_wait_ms_max),
            Patience(self.pulls, "waitTimeMillsInPullQueue", settings.pull_wait_ms_max),
        )
