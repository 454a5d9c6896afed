"""Which broker name has how many queues of a topic, and what may be done with them."""

from collections.abc import Callable, Collection

from msgspec import structs

from downrange.model.topics import Permission
from downrange.protocol.bodies.registration import TopicTable
from downrange.protocol.bodies.route import QueueData, QueueMapping


class TopicQueues:
    """Queues by topic and broker name; a topic without queues does not exist."""

    def __init__(self) -> None:
        self._topics: dict[str, dict[str, QueueData]] = {}
        self._mappings: dict[str, dict[str, QueueMapping]] = {}

    def take(self, name: str, table: TopicTable, *, is_changed: bool, is_read_only: bool) -> None:
        """Take over what a broker says about its topics.

        Of a table that has not changed only missing topics are taken: the others would undo
        `wipe_write_permission` with every registration.
        """
        for config in table.topic_config_table.values():
            queues = self._topics.setdefault(config.topic_name, {})
            if not is_changed and name in queues:
                continue
            queues[name] = QueueData(
                broker_name=name,
                read_queue_nums=config.read_queue_nums,
                write_queue_nums=config.write_queue_nums,
                perm=_without_write(config.perm) if is_read_only else config.perm,
                topic_sys_flag=config.topic_sys_flag,
            )
        if is_changed:
            for topic, mapping in table.topic_queue_mapping_info_map.items():
                self._mappings.setdefault(topic, {})[mapping.bname or name] = mapping

    def __len__(self) -> int:
        return len(self._topics)

    def __contains__(self, topic: object) -> bool:
        return topic in self._topics

    def put(self, topic: str, queue: QueueData) -> None:
        """Set the queues of one broker name."""
        self._topics.setdefault(topic, {})[queue.broker_name] = queue

    def remove(self, topic: str, name: str) -> None:
        """Take a broker name away from a topic, and the topic if it was the last one."""
        queues = self._topics.get(topic, {})
        queues.pop(name, None)
        if not queues:
            self.delete(topic)

    def delete(self, topic: str) -> None:
        """Forget a topic; one that is not known is no error."""
        self._topics.pop(topic, None)
        self._mappings.pop(topic, None)

    def keep_only(self, name: str, topics: Collection[str]) -> None:
        """Take a broker name away from all other topics."""
        for topic in [t for t, queues in self._topics.items() if name in queues]:
            if topic not in topics:
                self.remove(topic, name)

    def wipe_write_permission(self, name: str) -> int:
        """Let nobody write to a broker name; returns how many topics it has."""
        return self._change_permissions(name, _without_write)

    def add_write_permission(self, name: str) -> int:
        """Let everybody read and write; returns how many topics the broker name has."""
        return self._change_permissions(name, lambda _: Permission.READ_WRITE.value)

    def queues(self, topic: str) -> tuple[QueueData, ...]:
        """The queues of a topic, by broker name."""
        queues = self._topics.get(topic, {})
        return tuple(queues[name] for name in sorted(queues))

    def mappings(self, topic: str) -> dict[str, QueueMapping] | None:
        """The queue mappings of a static topic, by broker name."""
        return self._mappings.get(topic)

    def names(self) -> tuple[str, ...]:
        """The names of all topics."""
        return tuple(sorted(self._topics))

    def names_on(self, brokers: set[str]) -> tuple[str, ...]:
        """The topics that one of these broker names has."""
        return tuple(sorted(t for t, queues in self._topics.items() if brokers & queues.keys()))

    def names_with_flags(self, mask: int, wanted: int) -> tuple[str, ...]:
        """The topics whose system flag has these bits; the brokers of a topic have the same."""
        return tuple(
            sorted(
                topic
                for topic, queues in self._topics.items()
                if next(iter(queues.values())).topic_sys_flag & mask == wanted
            )
        )

    def _change_permissions(self, name: str, change: Callable[[int], int]) -> int:
        count = 0
        for queues in self._topics.values():
            queue = queues.get(name)
            if queue is not None:
                queues[name] = structs.replace(queue, perm=change(queue.perm))
                count += 1
        return count


def _without_write(perm: int) -> int:
    return perm & ~Permission.WRITE.value
