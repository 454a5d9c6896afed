"""Which queue a caller asks for, by name or by a selector."""

from collections.abc import Callable, Sequence

from downrange.client.errors import InvalidMessageError
from downrange.client.message import Message
from downrange.client.namespace import with_namespace, without_namespace
from downrange.client.publish_routes import PublishRoutes
from downrange.model.topics import MessageQueue

QueueSelector = Callable[[Sequence[MessageQueue], Message], MessageQueue]
"""Chooses the queue of a message among those of its topic."""


class QueueTargets:
    """Turns the queues that a user names into those that brokers know, and back."""

    def __init__(self, namespace: str, places: PublishRoutes) -> None:
        self._namespace = namespace
        self._places = places

    async def find(
        self,
        message: Message,
        topic: str,
        queue: MessageQueue | None,
        selector: QueueSelector | None,
        timeout_s: float,
    ) -> MessageQueue | None:
        """The queue that was asked for; `topic` is the message's as brokers know it."""
        if selector is not None:
            if queue is not None:
                raise InvalidMessageError("give a queue or a selector, not both", code=None)
            queues = await self._places.queues(topic, timeout_s)
            queue = selector([self.for_user(queue) for queue in queues], message)
        return self.named(message, topic, queue)

    def named(
        self, message: Message, topic: str, queue: MessageQueue | None
    ) -> MessageQueue | None:
        """The queue as brokers know it; an error if it is of another topic."""
        if queue is None:
            return None
        if with_namespace(queue.topic, self._namespace) != topic:
            raise InvalidMessageError(
                f"queue {queue.queue_id} of topic {queue.topic!r} for a message of topic "
                f"{message.topic!r}",
                code=None,
            )
        return MessageQueue(topic, queue.broker_name, queue.queue_id)

    def for_user(self, queue: MessageQueue) -> MessageQueue:
        """The queue as the user knows it."""
        topic = without_namespace(queue.topic, self._namespace)
        return MessageQueue(topic, queue.broker_name, queue.queue_id)
