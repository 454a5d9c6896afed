"""Requests of every kind to one broker, as a client in any language would send them."""

from dataclasses import dataclass

from downrange.model.names import AUTO_CREATE_TOPIC
from downrange.model.topics import SubscriptionGroupConfig
from downrange.protocol.batch import encode_batch
from downrange.protocol.command import Command
from downrange.protocol.headers.admin_group import DeleteGroupRequest
from downrange.protocol.headers.admin_topic import DeleteTopicInBrokerRequest
from downrange.protocol.headers.broker_to_client import ResetOffsetRequest
from downrange.protocol.headers.fields import Header, decode_header, encode_header
from downrange.protocol.headers.offset import (
    GetMinOffsetRequest,
    OffsetResponse,
    QueryConsumerOffsetRequest,
    UpdateConsumerOffsetRequest,
)
from downrange.protocol.headers.pull import PullRequest, PullResponse
from downrange.protocol.headers.query import QueryMessageRequest
from downrange.protocol.headers.send import SendBackRequest, SendRequestV2, SendResponse
from downrange.protocol.headers.topic import CreateTopicRequest
from downrange.protocol.headers.transaction import EndTransactionRequest
from downrange.protocol.json_text import write_json
from downrange.protocol.loose_json import read_json
from downrange.protocol.properties import encode_property_text
from downrange.protocol.record import Record, decode_records
from downrange.protocol.request_codes import RequestCode as Code
from downrange.protocol.response_codes import ResponseCode
from downrange.protocol.sys_flag import TRANSACTION_PREPARED
from downrange.remoting.client import RemotingClient
from downrange.remoting.network import Network

CALL_S_MAX = 3.0
PULL_COUNT = 32
PRODUCERS = "producers"


class RefusedError(Exception):
    """The broker answered with an error: nothing was promised."""


@dataclass(frozen=True, slots=True)
class Place:
    """Where the broker says that it has put a message."""

    topic: str
    queue_id: int
    queue_offset: int
    message_id: str
    transaction_id: str


class Wire:
    """Calls a broker by its port; a lost connection is made again with the next call."""

    def __init__(self, network: Network, port: int) -> None:
        self._client = RemotingClient(network)
        self._address = f"127.0.0.1:{port}"

    def close(self) -> None:
        """End all connections."""
        self._client.close()

    async def ask(self, code: Code, header: Header | None, body: bytes | None = None) -> Command:
        """The answer, whatever it says."""
        fields = None if header is None else encode_header(header)
        return await self._client.call(self._address, code, fields, body, timeout_s=CALL_S_MAX)

    async def do(self, code: Code, header: Header | None, body: bytes | None = None) -> Command:
        """The answer, if it is one of success."""
        answer = await self.ask(code, header, body)
        if answer.code != ResponseCode.SUCCESS:
            raise RefusedError(f"{code.name}: {answer.code} {answer.remark}")
        return answer

    # --- messages --------------------------------------------------------------------------

    async def send(
        self, topic: str, queue_id: int, body: bytes, now_ms: int, **properties: str
    ) -> Place:
        """A message; `properties` may delay it or make it the half of a transaction."""
        flag = TRANSACTION_PREPARED if properties.get("TRAN_MSG") == "true" else 0
        header = self._send_header(topic, queue_id, now_ms, properties, flag, is_batch=False)
        return self._place(topic, await self.do(Code.SEND_MESSAGE_V2, header, body))

    async def send_batch(
        self, topic: str, queue_id: int, bodies: list[bytes], now_ms: int
    ) -> list[Place]:
        """Several messages at once."""
        header = self._send_header(topic, queue_id, now_ms, {}, 0, is_batch=True)
        batch = encode_batch(
            (0, body, b"UNIQ_KEY\x01" + body + b"\x02KEYS\x01" + body) for body in bodies
        )
        place = self._place(topic, await self.do(Code.SEND_BATCH_MESSAGE, header, batch))
        ids = place.message_id.split(",")
        return [
            Place(topic, place.queue_id, place.queue_offset + index, message_id, "")
            for index, message_id in enumerate(ids)
        ]

    async def end_transaction(
        self, topic: str, queue_offset: int, offset: int, verdict: int
    ) -> None:
        """Commit or roll back."""
        header = EndTransactionRequest(
            topic=topic,
            producer_group=PRODUCERS,
            tran_state_table_offset=queue_offset,
            commit_log_offset=offset,
            commit_or_rollback=verdict,
            from_transaction_check=True,
            msg_id="",
        )
        await self.do(Code.END_TRANSACTION, header)

    async def send_back(self, record_offset: int, group: str, topic: str, level: int) -> None:
        """A consumer could not use the message."""
        header = SendBackRequest(
            offset=record_offset, group=group, delay_level=level, origin_topic=topic
        )
        await self.do(Code.CONSUMER_SEND_MSG_BACK, header)

    async def read(self, topic: str, queue_id: int) -> list[Record]:
        """Everything in a queue, from its first message to its last."""
        start = await self._offset_of(GetMinOffsetRequest(topic=topic, queue_id=queue_id))
        records: list[Record] = []
        while True:
            answer = await self.ask(Code.PULL_MESSAGE, _pull(topic, queue_id, start))
            if answer.code not in _ANSWERS_OF_A_PULL:
                raise RefusedError(f"pull of {topic} {queue_id} at {start}: {answer}")
            start_next = decode_header(PullResponse, answer.ext_fields).next_begin_offset
            found = list(decode_records(answer.body or b""))
            records += found
            if answer.code != ResponseCode.SUCCESS and start_next <= start:
                return records
            start = start_next

    async def find(self, topic: str, key: str) -> list[Record]:
        """Messages with a key."""
        header = QueryMessageRequest(
            topic=topic, key=key, max_num=64, begin_timestamp=0, end_timestamp=1 << 50
        )
        answer = await self.ask(Code.QUERY_MESSAGE, header)
        return list(decode_records(answer.body or b""))

    # --- tables ----------------------------------------------------------------------------

    async def create_topic(self, topic: str, queues: int) -> None:
        """As an administrator does."""
        header = CreateTopicRequest(
            topic=topic,
            default_topic=AUTO_CREATE_TOPIC,
            read_queue_nums=queues,
            write_queue_nums=queues,
            perm=6,
            topic_filter_type="SINGLE_TAG",
            order=False,
        )
        await self.do(Code.UPDATE_AND_CREATE_TOPIC, header)

    async def delete_topic(self, topic: str) -> None:
        """With its messages."""
        await self.do(Code.DELETE_TOPIC_IN_BROKER, DeleteTopicInBrokerRequest(topic=topic))

    async def create_group(self, group: str) -> None:
        """As an administrator does."""
        config = write_json(SubscriptionGroupConfig(group_name=group, retry_queue_nums=1))
        await self.do(Code.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, None, config)

    async def delete_group(self, group: str) -> None:
        """With its offsets."""
        header = DeleteGroupRequest(group_name=group, clean_offset=True)
        await self.do(Code.DELETE_SUBSCRIPTIONGROUP, header)

    async def commit(self, group: str, topic: str, queue_id: int, offset: int) -> None:
        """A consumer's progress."""
        header = UpdateConsumerOffsetRequest(
            consumer_group=group, topic=topic, queue_id=queue_id, commit_offset=offset
        )
        await self.do(Code.UPDATE_CONSUMER_OFFSET, header)

    async def reset(self, group: str, topic: str, queue_id: int, offset: int) -> None:
        """An operator moves a group."""
        header = ResetOffsetRequest(
            group=group, topic=topic, queue_id=queue_id, offset=offset, timestamp=0, is_force=True
        )
        await self.do(Code.INVOKE_BROKER_TO_RESET_OFFSET, header)

    async def offset(self, group: str, topic: str, queue_id: int) -> int | None:
        """Where a group stands; None if the broker does not know."""
        header = QueryConsumerOffsetRequest(
            consumer_group=group, topic=topic, queue_id=queue_id, set_zero_if_not_found=False
        )
        answer = await self.ask(Code.QUERY_CONSUMER_OFFSET, header)
        if answer.code != ResponseCode.SUCCESS:
            return None
        return decode_header(OffsetResponse, answer.ext_fields).offset

    async def topics(self) -> set[str]:
        """All topics of the broker."""
        return await self._names(Code.GET_ALL_TOPIC_CONFIG, "topicConfigTable")

    async def groups(self) -> set[str]:
        """All groups of the broker."""
        return await self._names(Code.GET_ALL_SUBSCRIPTIONGROUP_CONFIG, "subscriptionGroupTable")

    # --- inside ----------------------------------------------------------------------------

    async def _names(self, code: Code, table: str) -> set[str]:
        answer = await self.do(code, None)
        content = read_json(answer.body or b"{}")
        assert isinstance(content, dict)
        names = content[table]
        assert isinstance(names, dict)
        return {str(name) for name in names}

    async def _offset_of(self, header: GetMinOffsetRequest) -> int:
        answer = await self.do(Code.GET_MIN_OFFSET, header)
        return decode_header(OffsetResponse, answer.ext_fields).offset

    @staticmethod
    def _send_header(
        topic: str,
        queue_id: int,
        now_ms: int,
        properties: dict[str, str],
        sys_flag: int,
        *,
        is_batch: bool,
    ) -> SendRequestV2:
        return SendRequestV2(
            producer_group=PRODUCERS,
            topic=topic,
            default_topic=AUTO_CREATE_TOPIC,
            default_topic_queue_nums=4,
            queue_id=queue_id,
            sys_flag=sys_flag,
            born_timestamp=now_ms,
            flag=0,
            properties=encode_property_text({**properties, "WAIT": "true"}),
            batch=is_batch,
        )

    @staticmethod
    def _place(topic: str, answer: Command) -> Place:
        header = decode_header(SendResponse, answer.ext_fields)
        return Place(
            topic,
            header.queue_id,
            header.queue_offset,
            header.msg_id,
            header.transaction_id or "",
        )


_ANSWERS_OF_A_PULL = {
    ResponseCode.SUCCESS,
    ResponseCode.PULL_NOT_FOUND,
    ResponseCode.PULL_RETRY_IMMEDIATELY,
    ResponseCode.PULL_OFFSET_MOVED,
}


def _pull(topic: str, queue_id: int, offset: int) -> PullRequest:
    return PullRequest(
        consumer_group="readers",
        topic=topic,
        queue_id=queue_id,
        queue_offset=offset,
        max_msg_nums=PULL_COUNT,
        sys_flag=4,  # with a subscription, does not wait
        commit_offset=0,
        suspend_timeout_millis=0,
        subscription="*",
        sub_version=0,
    )
