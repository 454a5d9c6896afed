"""Which client consumes which queues when the broker decides, and by pull or by pop.

Client ids and queues must be sorted: every client and every broker shares them out alone and comes
to the same result only if all see the same order.
"""

from collections.abc import Callable, Sequence

from downrange.broker.saved_table import SavedTable
from downrange.model.topics import MessageQueue
from downrange.store.feature_tables import GroupRequestMode, RequestMode, RequestModes
from downrange.store.json_tables import TableFile

ALL_QUEUES = -1  # the queue id of a pop over all queues of a broker

# Client, queues, all clients -> the client's queues.
Strategy = Callable[[str, Sequence[MessageQueue], Sequence[str]], list[MessageQueue]]


def allocate_averagely(
    client_id: str, queues: Sequence[MessageQueue], client_ids: Sequence[str]
) -> list[MessageQueue]:
    """Queues side by side; the first clients get one more if it does not come out even."""
    if client_id not in client_ids:
        return []
    index, (size, rest) = client_ids.index(client_id), divmod(len(queues), len(client_ids))
    start = index * size + min(index, rest)
    return list(queues[start : start + size + (index < rest)])


def allocate_by_circle(
    client_id: str, queues: Sequence[MessageQueue], client_ids: Sequence[str]
) -> list[MessageQueue]:
    """Queues dealt out one by one, like cards."""
    if client_id not in client_ids:
        return []
    return list(queues[client_ids.index(client_id) :: len(client_ids)])


STRATEGIES: dict[str, Strategy] = {
    "AVG": allocate_averagely,
    "AVG_BY_CIRCLE": allocate_by_circle,
}


def allocate_for_pop(
    strategy: Strategy,
    client_id: str,
    queues: Sequence[MessageQueue],
    client_ids: Sequence[str],
    share_queue_nums: int,
) -> list[MessageQueue]:
    """Queues of a client that pops: its own and those of the `share_queue_nums` clients after it.

    Without sharing bounds it may pop from every queue of every broker.
    """
    if share_queue_nums <= 0 or share_queue_nums >= len(client_ids) - 1:
        return list(
            dict.fromkeys(MessageQueue(one.topic, one.broker_name, ALL_QUEUES) for one in queues)
        )
    if client_id not in client_ids:
        return []
    index = client_ids.index(client_id)
    if len(client_ids) > len(queues):
        return [queues[index % len(queues)]] if queues else []
    allocated: dict[MessageQueue, None] = {}
    for step in range(share_queue_nums + 1):
        other = client_ids[(index + step) % len(client_ids)]
        allocated.update(dict.fromkeys(strategy(other, queues, client_ids)))
    return list(allocated)


class RequestModeTable(SavedTable[RequestModes]):
    """Which groups pop which topics. Owned by the thread of the broker."""

    def __init__(
        self,
        file: TableFile[RequestModes],
        *,
        default_mode: RequestMode = RequestMode.PULL,
        default_share_queue_nums: int = -1,
    ) -> None:
        super().__init__(file, is_new=False)
        self._default_mode = default_mode
        self._default_share_queue_nums = default_share_queue_nums
        self._modes: dict[str, dict[str, GroupRequestMode]] = {}

    def load(self) -> None:
        """Take what the file holds."""
        table = self._file.load()
        if table is not None:
            self._modes = {topic: dict(groups) for topic, groups in table.modes.items()}
            self._note_loaded()

    def to_file(self) -> RequestModes:
        """The table as its file and its slaves see it."""
        return RequestModes(modes={topic: dict(groups) for topic, groups in self._modes.items()})

    def mode_of(self, topic: str, group: str, *, must_pull: bool = False) -> GroupRequestMode:
        """How a group gets a topic; by default unless somebody has set it."""
        found = self._modes.get(topic, {}).get(group)
        if found is not None:
            return found
        mode = RequestMode.PULL if must_pull else self._default_mode
        share = self._default_share_queue_nums if mode is RequestMode.POP else 0
        return GroupRequestMode(
            topic=topic, consumer_group=group, mode=mode, pop_share_queue_num=share
        )

    def set(self, mode: GroupRequestMode) -> None:
        """Let a group get a topic this way."""
        self._modes.setdefault(mode.topic, {})[mode.consumer_group] = mode
        self._note_change()
