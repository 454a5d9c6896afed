"""What went through the broker, counted; who wants rates looks at two moments."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from downrange.model.names import is_system_topic

# Pairs of group and topic that are counted apart. Peers choose the names: a message that is sent
# back says itself which topic it is of. Beyond that they are counted together.
SERIES_MAX: Final = 50_000
OTHER: Final = "__OTHER__"


@dataclass(slots=True)
class Tally:
    """Messages and bytes since the broker started."""

    count: int = 0
    size: int = 0


class BrokerStats:
    """Counters by topic and by group; owned by the event loop, bumped on the hot path.

    The totals of a day leave out topics that do not belong to users; which these are, `is_system`
    decides, set by the owner as soon as it knows the topics named after cluster and broker.
    """

    def __init__(self) -> None:
        self.is_system: Callable[[str], bool] = is_system_topic
        self._system_puts: list[Tally] = []
        self._system_gets: list[Tally] = []
        self.put = Tally()
        self.got = Tally()
        self.put_by_topic: dict[str, Tally] = {}
        self.got_by_group: dict[tuple[str, str], Tally] = {}
        self.sent_back: dict[tuple[str, str], int] = {}
        self.put_failures = 0

    @property
    def user_puts(self) -> int:
        """How many messages were taken for topics of users."""
        return self.put.count - sum(tally.count for tally in self._system_puts)

    @property
    def user_gets(self) -> int:
        """How many messages of topics of users were handed out."""
        return self.got.count - sum(tally.count for tally in self._system_gets)

    def add_put(self, topic: str, count: int, size: int) -> None:
        """Messages were taken."""
        tally = self.put_by_topic.get(topic)
        if tally is None:
            tally = self.put_by_topic[topic] = Tally()
            if self.is_system(topic):
                self._system_puts.append(tally)
        tally.count += count
        tally.size += size
        self.put.count += count
        self.put.size += size

    def add_got(self, group: str, topic: str, count: int, size: int) -> None:
        """Messages were handed to a group."""
        tally = self.got_by_group.get((group, topic))
        if tally is None:
            if len(self.got_by_group) >= SERIES_MAX:
                group = topic = OTHER
            tally = self.got_by_group.setdefault((group, topic), Tally())
            if self.is_system(topic):
                self._system_gets.append(tally)
        tally.count += count
        tally.size += size
        self.got.count += count
        self.got.size += size

    def add_put_failure(self) -> None:
        """A message or batch was not taken."""
        self.put_failures += 1

    def add_sent_back(self, group: str, topic: str) -> None:
        """A consumer sent a message back; the topic is what the message says it was."""
        if (group, topic) not in self.sent_back and len(self.sent_back) >= SERIES_MAX:
            group = topic = OTHER
        self.sent_back[group, topic] = self.sent_back.get((group, topic), 0) + 1

    def forget_group(self, group: str) -> None:
        """A group was deleted."""
        self._forget(0, group)

    def forget_topic(self, topic: str) -> None:
        """A topic was deleted."""
        self.put_by_topic.pop(topic, None)
        self._forget(1, topic)

    def _forget(self, position: int, name: str) -> None:
        for key in [key for key in self.got_by_group if key[position] == name]:
            del self.got_by_group[key]
        for key in [key for key in self.sent_back if key[position] == name]:
            del self.sent_back[key]
