"""Single messages: by id, unique id, key, or place in a queue."""

from typing import Final

from downrange.admin.errors import NothingThereError
from downrange.admin.topics import Topics, masters_of
from downrange.client.broker_calls import BrokerCalls
from downrange.client.errors import BrokerRefusal, BrokerUnreachableError, RocketMQError
from downrange.client.message import ReceivedMessage
from downrange.protocol.errors import ProtocolError
from downrange.protocol.headers.query import QueryMessageRequest
from downrange.protocol.hosts import format_address
from downrange.protocol.integers import INT64_MAX
from downrange.protocol.message_id import decode_message_id

COUNT: Final = 32


class Messages:
    """Finds messages wherever they are."""

    def __init__(self, calls: BrokerCalls, topics: Topics) -> None:
        self._calls = calls
        self._topics = topics

    async def by_id(self, message_id: str, topic: str | None = None) -> ReceivedMessage:
        """The message with an id of either kind: its place in a broker, or a producer's own."""
        if topic is not None:
            found = await self.by_unique_id(topic, message_id)
            if found:
                return found[0]
        hint = "" if topic is not None else "; if a producer gave this id, name the topic with -t"
        try:
            place = decode_message_id(message_id)
        except ProtocolError as error:
            raise NothingThereError(f"no message {message_id}: {error}{hint}") from None
        address = format_address(place.ip, place.port)
        try:
            return await self._calls.view_message(address, place.physical_offset, topic=topic)
        except BrokerRefusal as error:
            raise NothingThereError(f"no message {message_id}: {error.remark}{hint}") from error
        except BrokerUnreachableError as error:
            raise NothingThereError(
                f"no message {message_id}: the id names the broker {address}, and {error}{hint}"
            ) from error
        except (ProtocolError, ValueError) as error:
            raise NothingThereError(f"no message {message_id}: {error}{hint}") from error

    async def by_unique_id(self, topic: str, unique_id: str) -> list[ReceivedMessage]:
        """The messages that a producer gave this id; a retry may have stored one twice."""
        return await self._query(topic, unique_id, COUNT, 0, INT64_MAX, unique=True)

    async def by_key(
        self,
        topic: str,
        key: str,
        *,
        count_max: int = COUNT,
        begin_ms: int = 0,
        end_ms: int = INT64_MAX,
    ) -> list[ReceivedMessage]:
        """The newest messages with a key, in the order of their store times."""
        return await self._query(topic, key, count_max, begin_ms, end_ms, unique=False)

    async def _query(
        self, topic: str, key: str, count_max: int, begin_ms: int, end_ms: int, *, unique: bool
    ) -> list[ReceivedMessage]:
        header = QueryMessageRequest(
            topic=topic,
            key=key,
            max_num=count_max,
            begin_timestamp=begin_ms,
            end_timestamp=end_ms,
            unique_key=True if unique else None,
        )
        found: list[ReceivedMessage] = []
        for one in masters_of(await self._topics.route(topic)):
            try:
                messages = await self._calls.query_messages(
                    one.address, header, broker_name=one.name
                )
            except ProtocolError as error:
                raise RocketMQError(f"the answer of {one.address}: {error}") from error
            # The index knows hashes, and different keys share some.
            found += [message for message in messages if _has(message, topic, key, unique=unique)]
        found.sort(key=lambda message: (message.store_timestamp_ms, message.physical_offset))
        return found[-count_max:]


def _has(message: ReceivedMessage, topic: str, key: str, *, unique: bool) -> bool:
    if message.topic != topic:
        return False
    return message.message_id == key if unique else key in message.keys
