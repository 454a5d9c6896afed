"""Gives messages that a group could not consume back to the broker, to come again later."""

import logging
from collections.abc import Awaitable, Callable
from typing import Final

from downrange.client.errors import RocketMQError
from downrange.client.message import Message, ReceivedMessage
from downrange.client.namespace import with_namespace
from downrange.client.queue_calls import QueueCalls
from downrange.client.routes import STATIC_BROKER_PREFIX
from downrange.model.names import retry_topic
from downrange.model.topics import MessageQueue
from downrange.protocol import property_names as names

_log = logging.getLogger(__name__)

FIRST_DELAY_LEVEL: Final = 3  # of a message that we send to the retry topic ourselves
RetrySender = Callable[[Message], Awaitable[object]]


class SendBack:
    """Sends back for one group; `sender` is the way out when a broker does not take a message."""

    def __init__(
        self,
        calls: QueueCalls,
        group: str,
        *,
        max_reconsume_times: int,
        namespace: str = "",
        unit_mode: bool = False,
        sender: RetrySender | None = None,
    ) -> None:
        self._calls = calls
        self._group = group
        self._max_reconsume_times = max_reconsume_times
        self._namespace = namespace
        self._unit_mode = unit_mode
        self._sender = sender

    async def give_back(
        self, message: ReceivedMessage, queue: MessageQueue, delay_level: int
    ) -> bool:
        """Have it come again; whether somebody has taken it.

        Without its broker it goes to the group's retry topic wherever that is, as a new message.
        """
        if not queue.broker_name.startswith(STATIC_BROKER_PREFIX):
            try:
                await self._calls.send_back(
                    message,
                    queue,
                    delay_level,
                    self._max_reconsume_times,
                    origin_topic=with_namespace(message.topic, self._namespace),
                    unit_mode=self._unit_mode,
                )
            except RocketMQError as error:
                _log.warning("%s not taken back by its broker: %s", message, error)
            else:
                return True
        return await self.send_again(message)

    async def send_again(self, message: ReceivedMessage) -> bool:
        """Send it to the group's retry topic as a new message; whether that worked."""
        if self._sender is None:
            return False
        topic = with_namespace(message.topic, self._namespace)
        again = retry_message(message, self._group, topic, self._max_reconsume_times)
        try:
            await self._sender(again)
        except RocketMQError as error:
            _log.warning("%s not sent to the retry topic of %s: %s", message, self._group, error)
            return False
        return True


def retry_message(
    message: ReceivedMessage, group: str, origin_topic: str, max_reconsume_times: int
) -> Message:
    """The message as a new one for the retry topic, which the broker counts as one more try."""
    properties = dict(message.properties)
    properties.setdefault(names.ORIGIN_MESSAGE_ID, message.message_id)
    properties[names.RETRY_TOPIC] = origin_topic
    properties[names.RECONSUME_TIME] = str(message.reconsume_times + 1)
    properties[names.MAX_RECONSUME_TIMES] = str(max_reconsume_times)
    properties.pop(names.TRANSACTION_PREPARED, None)
    properties[names.DELAY_LEVEL] = str(FIRST_DELAY_LEVEL + message.reconsume_times)
    return Message.of_properties(retry_topic(group), message.body, properties, message.flag)
