"""Notices when queues of a topic come or go, for programs that assign queues by themselves."""

import logging
from collections.abc import Awaitable, Callable, Iterable

from downrange.client.errors import RocketMQError
from downrange.model.topics import MessageQueue

_log = logging.getLogger(__name__)

QueueListener = Callable[[str, frozenset[MessageQueue]], None]
"""Hears the topic and all of its queues that can be read now."""


class QueueWatch:
    """The watched topics of one consumer; what a topic has at the first look is no news."""

    def __init__(self, fetch: Callable[[str], Awaitable[Iterable[MessageQueue]]]) -> None:
        self._fetch = fetch
        self._listeners: dict[str, QueueListener] = {}
        self._known: dict[str, frozenset[MessageQueue]] = {}

    def add(self, topic: str, listener: QueueListener) -> None:
        """Watch a topic; a second listener takes the place of the first."""
        self._listeners[topic] = listener

    async def look(self) -> None:
        """Ask for the queues of all topics and tell what has changed."""
        for topic, listener in list(self._listeners.items()):
            try:
                queues = frozenset(await self._fetch(topic))
            except RocketMQError as error:
                _log.warning("queues of topic %s not looked at: %s", topic, error)
                continue
            known = self._known.get(topic)
            self._known[topic] = queues
            if known is not None and known != queues:
                _tell(listener, topic, queues)


def _tell(listener: QueueListener, topic: str, queues: frozenset[MessageQueue]) -> None:
    try:
        listener(topic, queues)
    except Exception:  # noqa: BLE001 - the user's own
        _log.exception("the listener for the queues of topic %s failed", topic)
