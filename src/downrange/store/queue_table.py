"""All consume queues of a store, by topic and queue id."""

import logging
from collections.abc import Iterator
from pathlib import Path

from downrange.runtime.disk import Disk
from downrange.store.consume_queue import ConsumeQueue
from downrange.store.errors import SegmentMissingError
from downrange.store.settings import StoreSettings

_log = logging.getLogger(__name__)


class QueueTable:
    """Finds, creates and deletes consume queues; their directories are TOPIC/QUEUE."""

    def __init__(self, disk: Disk, settings: StoreSettings) -> None:
        self._disk = disk
        self._root = settings.consume_queue_path
        self._entries_per_file = settings.queue_entries
        self._queues: dict[tuple[str, int], ConsumeQueue] = {}
        self.forgotten = False

    def load(self) -> None:
        """Map the queues that are there; those that have lost a file are removed."""
        for topic_path in self._disk.list_directory(self._root):
            for queue_path in self._disk.list_directory(topic_path):
                if queue_path.name.isascii() and queue_path.name.isdigit():
                    self._load(self.ensure(topic_path.name, int(queue_path.name)))

    def _load(self, queue: ConsumeQueue) -> None:
        try:
            queue.load()
        except SegmentMissingError as error:
            self.forget(queue, str(error))
        if queue.chain.has_short_file:
            self.forget(queue, f"a file in {queue.chain.directory} was cut off")

    def forget(self, queue: ConsumeQueue, reason: str) -> None:
        """Remove a queue that is not whole; it has to be built again from all of the log."""
        _log.error("the queue %s/%s is built again: %s", queue.topic, queue.queue_id, reason)
        self.forgotten = True
        del self._queues[queue.topic, queue.queue_id]
        queue.chain.destroy()

    def __iter__(self) -> Iterator[ConsumeQueue]:
        return iter(self._queues.values())

    def __len__(self) -> int:
        return len(self._queues)

    def get(self, topic: str, queue_id: int) -> ConsumeQueue | None:
        """The queue, if a message was ever put into it."""
        return self._queues.get((topic, queue_id))

    def ensure(self, topic: str, queue_id: int) -> ConsumeQueue:
        """The queue, new and empty if there was none; files come with its first entry."""
        queue = self._queues.get((topic, queue_id))
        if queue is None:
            queue = self._queues[topic, queue_id] = ConsumeQueue(
                self._disk, self._path(topic, queue_id), topic, queue_id, self._entries_per_file
            )
        return queue

    def of_topic(self, topic: str) -> list[ConsumeQueue]:
        """The queues of a topic, by queue id."""
        found = [queue for (name, _), queue in self._queues.items() if name == topic]
        return sorted(found, key=lambda queue: queue.queue_id)

    def delete_topic(self, topic: str) -> int:
        """Remove the queues of a topic with their files; the log keeps its records."""
        queues = self.of_topic(topic)
        for queue in queues:
            del self._queues[topic, queue.queue_id]
            queue.chain.destroy()
        if queues and self._disk.exists(self._root / topic):
            self._disk.remove_directory(self._root / topic)
        return len(queues)

    def close(self) -> None:
        """Unmap the files."""
        for queue in self:
            queue.chain.close()
        self._queues.clear()

    def _path(self, topic: str, queue_id: int) -> Path:
        return self._root / topic / str(queue_id)
