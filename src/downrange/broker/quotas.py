"""How many topics, queues and groups a broker may have; without a limit unless settings say so."""

from collections import Counter
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field

from downrange.model.topics import TopicConfig
from downrange.protocol.response_codes import ResponseCode
from downrange.remoting.errors import Refused


@dataclass(frozen=True, slots=True, kw_only=True)
class Quota:
    """Checked where clients and administrators create things; 0 means no limit.

    Everything in a table counts, the broker's own topics and groups and retry topics too. Topics
    that the broker needs itself are created beyond it. `refusals` counts by setting.
    """

    topics_max: int = 0
    queues_max: int = 0
    groups_max: int = 0
    refusals: Counter[str] = field(default_factory=Counter)

    def check_topics(
        self, existing: Mapping[str, TopicConfig], new: Collection[TopicConfig]
    ) -> None:
        """Check that these topics may be created or changed."""
        if self.topics_max:
            count = len(existing.keys() | {config.topic_name for config in new})
            if count > len(existing):
                self._check("topicsMax", "topics", count, self.topics_max)
        if self.queues_max:
            before = sum(map(_queues, existing.values()))
            changed = {config.topic_name: _queues(config) for config in new}
            replaced = sum(_queues(existing[name]) for name in changed if name in existing)
            count = before - replaced + sum(changed.values())
            if count > before:
                self._check("queuesMax", "queues", count, self.queues_max)

    def check_group(self, existing_count: int) -> None:
        """Check that one more group may be created."""
        if self.groups_max:
            self._check("groupsMax", "consumer groups", existing_count + 1, self.groups_max)

    def _check(self, setting: str, what: str, count: int, count_max: int) -> None:
        if count > count_max:
            self.refusals[setting] += 1
            raise Refused(
                ResponseCode.NO_PERMISSION,
                f"the broker would have {count} {what}, {setting} is {count_max}: delete some, or "
                "raise it",
            )


def _queues(config: TopicConfig) -> int:
    return max(config.read_queue_nums, config.write_queue_nums)
