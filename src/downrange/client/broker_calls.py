"""What a client asks a broker, one method for each request: typed values in, typed values out.

Every method takes the broker's address and raises a `RocketMQError`; an answer that is no success
and has no meaning of its own is a `BrokerRefusal`.
"""

from collections.abc import Iterable
from typing import Final, NamedTuple

from downrange.client.answers import (
    answered_body,
    answered_header,
    answered_message,
    answered_messages,
)
from downrange.client.errors import BadAnswerError, BrokerRefusal
from downrange.client.message import ReceivedMessage
from downrange.client.peers import Peers
from downrange.model.topics import MessageQueue
from downrange.protocol.bodies.consumer import ConsumerList
from downrange.protocol.bodies.heartbeat import CheckClientConfig, Heartbeat, Subscription
from downrange.protocol.bodies.json_body import encode_body
from downrange.protocol.bodies.queues import LockRequest, LockResponse
from downrange.protocol.command import Command
from downrange.protocol.headers import client, offset, query, send
from downrange.protocol.headers.fields import Header, encode_header
from downrange.protocol.headers.pull import PullRequest, PullResponse
from downrange.protocol.headers.transaction import EndTransactionRequest
from downrange.protocol.request_codes import RequestCode
from downrange.protocol.response_codes import ResponseCode

CONSUMERS_MAX: Final = 65_536  # of one group
PULL_CODES: Final = frozenset(
    {
        ResponseCode.SUCCESS,
        ResponseCode.PULL_NOT_FOUND,
        ResponseCode.PULL_RETRY_IMMEDIATELY,
        ResponseCode.PULL_OFFSET_MOVED,
    }
)
"""FOUND, NO_NEW_MSG, NO_MATCHED_MSG and OFFSET_ILLEGAL; every other code is a refusal."""


class PullAnswer(NamedTuple):
    """The answer to a pull; `code` is one of `PULL_CODES`, `records` the bytes of the messages."""

    code: int
    header: PullResponse
    records: bytes


class HeartbeatAnswer(NamedTuple):
    """What a broker says to a heartbeat."""

    version: int
    supports_v2: bool
    subscription_changed: bool


class BrokerCalls:
    """Typed requests over the connections of a session."""

    def __init__(self, peers: Peers, *, timeout_s: float) -> None:
        self._peers = peers
        self._timeout_s = timeout_s
        self._without_lite_pull: set[str] = set()  # brokers of the 4.9 line

    # --- pulling ---------------------------------------------------------------------------

    async def pull(
        self, address: str, header: PullRequest, *, timeout_s: float, lite: bool = False
    ) -> PullAnswer:
        """Messages from a queue. A broker may hold the request for `suspend_timeout_millis`.

        A broker that knows no lite pulls is asked for a plain one, which finds the same.
        """
        lite = lite and address not in self._without_lite_pull
        code = RequestCode.LITE_PULL_MESSAGE if lite else RequestCode.PULL_MESSAGE
        answer = await self._peers.call(address, code, encode_header(header), timeout_s=timeout_s)
        if lite and answer.code == ResponseCode.REQUEST_CODE_NOT_SUPPORTED:
            self._without_lite_pull.add(address)
            return await self.pull(address, header, timeout_s=timeout_s)
        if answer.code not in PULL_CODES:
            raise _refusal(answer, address)
        header_of_answer = answered_header(PullResponse, answer, _peer(address))
        return PullAnswer(answer.code, header_of_answer, answer.body or b"")

    # --- offsets ---------------------------------------------------------------------------

    async def consumer_offset(
        self, address: str, group: str, queue: MessageQueue, *, timeout_s: float | None = None
    ) -> int | None:
        """How far a group has come in a queue; None if the broker does not know the group there."""
        header = offset.QueryConsumerOffsetRequest(
            consumer_group=group, topic=queue.topic, queue_id=queue.queue_id
        )
        answer = await self._call(address, RequestCode.QUERY_CONSUMER_OFFSET, header, timeout_s)
        if answer.code == ResponseCode.QUERY_NOT_FOUND:
            return None
        return _offset(answer, address)

    async def update_consumer_offset(
        self,
        address: str,
        group: str,
        queue: MessageQueue,
        commit_offset: int,
        *,
        one_way: bool = False,
        timeout_s: float | None = None,
    ) -> None:
        """Say how far a group has come."""
        header = offset.UpdateConsumerOffsetRequest(
            consumer_group=group,
            topic=queue.topic,
            queue_id=queue.queue_id,
            commit_offset=commit_offset,
        )
        code = RequestCode.UPDATE_CONSUMER_OFFSET
        if one_way:
            await self._one_way(address, code, header)
        else:
            _checked(await self._call(address, code, header, timeout_s), address)

    async def max_offset(
        self, address: str, queue: MessageQueue, *, timeout_s: float | None = None
    ) -> int:
        """The offset that the next message of a queue will get."""
        header = offset.GetMaxOffsetRequest(topic=queue.topic, queue_id=queue.queue_id)
        return _offset(
            await self._call(address, RequestCode.GET_MAX_OFFSET, header, timeout_s), address
        )

    async def min_offset(
        self, address: str, queue: MessageQueue, *, timeout_s: float | None = None
    ) -> int:
        """The first offset of a queue that is still kept."""
        header = offset.GetMinOffsetRequest(topic=queue.topic, queue_id=queue.queue_id)
        return _offset(
            await self._call(address, RequestCode.GET_MIN_OFFSET, header, timeout_s), address
        )

    async def search_offset(
        self,
        address: str,
        queue: MessageQueue,
        timestamp_ms: int,
        *,
        upper: bool = False,
        timeout_s: float | None = None,
    ) -> int:
        """The first offset at or after a time (or the last one, `upper`)."""
        header = offset.SearchOffsetRequest(
            topic=queue.topic,
            queue_id=queue.queue_id,
            timestamp=timestamp_ms,
            boundary_type="upper" if upper else "lower",
        )
        code = RequestCode.SEARCH_OFFSET_BY_TIMESTAMP
        return _offset(await self._call(address, code, header, timeout_s), address)

    async def earliest_store_time_ms(
        self, address: str, queue: MessageQueue, *, timeout_s: float | None = None
    ) -> int:
        """When the first message that is still kept was stored."""
        header = offset.GetEarliestStoreTimeRequest(topic=queue.topic, queue_id=queue.queue_id)
        code = RequestCode.GET_EARLIEST_MSG_STORETIME
        answer = _checked(await self._call(address, code, header, timeout_s), address)
        return answered_header(offset.TimestampResponse, answer, _peer(address)).timestamp

    # --- consuming together ----------------------------------------------------------------

    async def consumer_ids(
        self, address: str, group: str, *, timeout_s: float | None = None
    ) -> list[str]:
        """The clients of a group that this broker knows; none if it does not know the group."""
        header = client.GetConsumerListRequest(consumer_group=group)
        code = RequestCode.GET_CONSUMER_LIST_BY_GROUP
        answer = await self._call(address, code, header, timeout_s)
        if answer.code == ResponseCode.SYSTEM_ERROR:
            return []  # what a broker says of a group without a living client
        _checked(answer, address)
        ids = answered_body(ConsumerList, answer, _peer(address)).consumer_id_list
        if len(ids) > CONSUMERS_MAX:
            raise BadAnswerError(
                _peer(address),
                f"group {group} has {len(ids)} clients, the limit is {CONSUMERS_MAX}",
            )
        return list(ids)

    async def lock_queues(
        self,
        address: str,
        group: str,
        client_id: str,
        queues: Iterable[MessageQueue],
        *,
        timeout_s: float | None = None,
    ) -> frozenset[MessageQueue]:
        """Which of the queues this client holds now."""
        body = LockRequest(consumer_group=group, client_id=client_id, mq_set=tuple(queues))
        answer = await self._peers.call(
            address,
            RequestCode.LOCK_BATCH_MQ,
            {},
            encode_body(body),
            timeout_s=timeout_s or self._timeout_s,
        )
        _checked(answer, address)
        locked = answered_body(LockResponse, answer, _peer(address)).locked
        return frozenset(locked).intersection(body.mq_set)

    async def unlock_queues(
        self,
        address: str,
        group: str,
        client_id: str,
        queues: Iterable[MessageQueue],
        *,
        one_way: bool = False,
        timeout_s: float | None = None,
    ) -> None:
        """Let go of queues."""
        body = encode_body(
            LockRequest(consumer_group=group, client_id=client_id, mq_set=tuple(queues))
        )
        code, limit_s = RequestCode.UNLOCK_BATCH_MQ, timeout_s or self._timeout_s
        if one_way:
            await self._peers.one_way(address, code, {}, body, timeout_s=limit_s)
        else:
            _checked(await self._peers.call(address, code, {}, body, timeout_s=limit_s), address)

    async def send_back(
        self, address: str, header: send.SendBackRequest, *, timeout_s: float | None = None
    ) -> None:
        """Have a message delivered to its group again, later."""
        code = RequestCode.CONSUMER_SEND_MSG_BACK
        _checked(await self._call(address, code, header, timeout_s), address)

    # --- looking up ------------------------------------------------------------------------

    async def query_messages(
        self,
        address: str,
        header: query.QueryMessageRequest,
        *,
        broker_name: str = "",
        timeout_s: float | None = None,
    ) -> list[ReceivedMessage]:
        """Messages by key, or by unique id if the header says so."""
        answer = await self._call(address, RequestCode.QUERY_MESSAGE, header, timeout_s)
        if answer.code == ResponseCode.QUERY_NOT_FOUND:
            return []
        records = _checked(answer, address).body or b""
        return answered_messages(records, _peer(address), broker_name=broker_name)

    async def view_message(
        self,
        address: str,
        physical_offset: int,
        *,
        topic: str | None = None,
        broker_name: str = "",
        timeout_s: float | None = None,
    ) -> ReceivedMessage:
        """The message at a place of the commit log."""
        header = query.ViewMessageRequest(topic=topic, offset=physical_offset)
        code = RequestCode.VIEW_MESSAGE_BY_ID
        answer = _checked(await self._call(address, code, header, timeout_s), address)
        return answered_message(answer.body or b"", _peer(address), broker_name=broker_name)

    # --- the life of a client --------------------------------------------------------------

    async def heartbeat(
        self, address: str, beat: Heartbeat, *, timeout_s: float | None = None
    ) -> HeartbeatAnswer:
        """Say who we are and what we want."""
        answer = _checked(
            await self._peers.call(
                address,
                RequestCode.HEART_BEAT,
                {},
                encode_body(beat),
                timeout_s=timeout_s or self._timeout_s,
            ),
            address,
        )
        header = answered_header(client.HeartbeatResponse, answer, _peer(address))
        return HeartbeatAnswer(
            answer.version, bool(header.supports_heartbeat_v2), bool(header.subscription_changed)
        )

    async def unregister(
        self,
        address: str,
        client_id: str,
        *,
        producer_group: str | None = None,
        consumer_group: str | None = None,
        timeout_s: float | None = None,
    ) -> None:
        """Leave a group."""
        header = client.UnregisterClientRequest(
            client_id=client_id, producer_group=producer_group, consumer_group=consumer_group
        )
        code = RequestCode.UNREGISTER_CLIENT
        _checked(await self._call(address, code, header, timeout_s), address)

    async def check_client(
        self,
        address: str,
        client_id: str,
        group: str,
        subscription: Subscription,
        *,
        timeout_s: float | None = None,
    ) -> None:
        """Would this subscription be accepted? A `BrokerRefusal` says why not."""
        body = CheckClientConfig(client_id=client_id, group=group, subscription_data=subscription)
        answer = await self._peers.call(
            address,
            RequestCode.CHECK_CLIENT_CONFIG,
            {},
            encode_body(body),
            timeout_s=timeout_s or self._timeout_s,
        )
        _checked(answer, address)

    # --- second phases ---------------------------------------------------------------------

    async def end_transaction(
        self, address: str, header: EndTransactionRequest, *, timeout_s: float | None = None
    ) -> None:
        """Say what became of a half message; nobody answers, the broker asks again if it must."""
        await self._peers.one_way(
            address,
            RequestCode.END_TRANSACTION,
            encode_header(header),
            timeout_s=timeout_s or self._timeout_s,
        )

    async def recall(
        self, address: str, header: send.RecallRequest, *, timeout_s: float | None = None
    ) -> str:
        """Take back a delayed message; its id."""
        answer = await self._call(address, RequestCode.RECALL_MESSAGE, header, timeout_s)
        _checked(answer, address)
        return answered_header(send.RecallResponse, answer, _peer(address)).msg_id

    # --- inside ----------------------------------------------------------------------------

    async def _call(
        self, address: str, code: int, header: Header, timeout_s: float | None
    ) -> Command:
        return await self._peers.call(
            address, code, encode_header(header), timeout_s=timeout_s or self._timeout_s
        )

    async def _one_way(self, address: str, code: int, header: Header) -> None:
        await self._peers.one_way(address, code, encode_header(header), timeout_s=self._timeout_s)


def _checked(answer: Command, address: str) -> Command:
    if answer.code != ResponseCode.SUCCESS:
        raise _refusal(answer, address)
    return answer


def _refusal(answer: Command, address: str) -> BrokerRefusal:
    return BrokerRefusal(answer.code, answer.remark or "", _peer(address))


def _peer(address: str) -> str:
    return f"broker {address}"


def _offset(answer: Command, address: str) -> int:
    _checked(answer, address)
    return answered_header(offset.OffsetResponse, answer, _peer(address)).offset
