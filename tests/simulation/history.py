"""What clients and operators saw of a cluster, as values that a checker can look at."""

from collections import defaultdict
from dataclasses import dataclass, field

Place = tuple[str, str, int, int]  # broker, topic, queue id, queue offset


@dataclass(frozen=True, slots=True)
class Sent:
    """A send that was answered with SEND_OK."""

    at_s: float
    body: str
    place: Place
    due_s: float = 0.0  # not to be delivered before, if it was delayed


@dataclass(frozen=True, slots=True)
class Handled:
    """A message that a consumer's program has finished with."""

    at_s: float
    consumer: str
    body: str
    place: Place
    is_first_try: bool


@dataclass(frozen=True, slots=True)
class Committed:
    """How far a broker believes a group to be, at some moment."""

    at_s: float
    broker: str
    topic: str
    queue_id: int
    offset: int


@dataclass(frozen=True, slots=True)
class Struck:
    """A fault that began or ended."""

    at_s: float
    fault: str
    target: str
    is_over: bool = False


@dataclass(slots=True)
class History:
    """Belongs to one run; events are in the order of time."""

    is_sync: bool
    sent: list[Sent] = field(default_factory=list)
    handled: list[Handled] = field(default_factory=list)
    committed: list[Committed] = field(default_factory=list)
    struck: list[Struck] = field(default_factory=list)
    given_back: dict[Place, float] = field(
        default_factory=dict
    )  # by a consumer whose program failed
    verdicts: dict[str, str] = field(default_factory=dict)  # body -> commit or rollback
    end_s: float = 0.0

    def first_handled(self) -> dict[str, Handled]:
        """When each message was finished for the first time."""
        first: dict[str, Handled] = {}
        for one in self.handled:
            first.setdefault(one.body, one)
        return first

    def handled_places(self) -> dict[str, list[Handled]]:
        """Everything that was finished, by body."""
        by_body: dict[str, list[Handled]] = defaultdict(list)
        for one in self.handled:
            by_body[one.body].append(one)
        return by_body

    def power_cuts(self, broker: str) -> list[float]:
        """When a broker lost its power."""
        return [
            one.at_s
            for one in self.struck
            if one.target == broker and one.fault == "power cut" and not one.is_over
        ]

    def may_have_lost(self, broker: str) -> bool:
        """Whether acknowledged messages may be gone here, and their offsets used again."""
        return not self.is_sync and bool(self.power_cuts(broker))

    def quiet_since_s(self) -> float:
        """When the last fault was over."""
        return max((one.at_s for one in self.struck), default=0.0)
