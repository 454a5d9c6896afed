"""Refuses what comes next, with the code and the text that a test wants to see arrive."""

import threading
from dataclasses import dataclass

from downrange.broker.hooks import Delivery, SendBack, Sending, SendOutcome
from downrange.remoting.errors import Refused


@dataclass(slots=True)
class _Refusal:
    code: int
    remark: str
    left: int
    topic: str | None


class Refusals:
    """What shall be refused, in order; used from any thread."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._waiting: list[_Refusal] = []

    def add(self, code: int, remark: str, count: int, topic: str | None) -> None:
        """Refuse the next `count` of this topic, or of any."""
        if count < 1:
            raise ValueError(f"count is {count}, but must be at least 1")
        with self._lock:
            self._waiting.append(_Refusal(code, remark, count, topic))

    def clear(self) -> None:
        """Refuse nothing more."""
        with self._lock:
            self._waiting.clear()

    @property
    def left(self) -> int:
        """How many are still to be refused."""
        with self._lock:
            return sum(refusal.left for refusal in self._waiting)

    def meet(self, topic: str) -> None:
        """Raise `Refused` if it is this one's turn."""
        with self._lock:
            for refusal in self._waiting:
                if refusal.topic in {None, topic}:
                    refusal.left -= 1
                    if not refusal.left:
                        self._waiting.remove(refusal)
                    raise Refused(refusal.code, refusal.remark)


class SendRefusals(Refusals):
    """A hook for sends."""

    def before_send(self, sending: Sending, /) -> None:
        """Refuse it if it is its turn."""
        self.meet(sending.topic)

    def after_send(self, sending: Sending, outcome: SendOutcome, /) -> None:
        """Nothing to do."""


class PullRefusals(Refusals):
    """A hook for pulls that have found something."""

    def before_consume(self, delivery: Delivery, /) -> None:
        """Refuse it if it is its turn."""
        self.meet(delivery.topic)

    def after_send_back(self, send_back: SendBack, /) -> None:
        """Nothing to do."""
