"""A cluster in memory with topics and messages, and consumers that remember what they got."""

import itertools
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import Self

from unit.broker.one_broker import pass_time

from downrange.broker.settings import BrokerSettings
from downrange.client.consumer_settings import PushConsumerSettings
from downrange.client.listeners import (
    Batch,
    ConcurrentContext,
    ConsumeStatus,
    OnTheLoop,
    OrderlyContext,
    OrderlyStatus,
)
from downrange.client.message import ReceivedMessage
from downrange.client.push_consumer import PushConsumer
from downrange.client.session_table import SessionTable
from downrange.client.settings import ClientSettings
from downrange.client.start_offset import ConsumeFromWhere
from downrange.protocol.bodies.consumer import ConsumerList
from downrange.protocol.bodies.json_body import decode_body
from downrange.protocol.headers.fields import encode_header
from downrange.protocol.headers.send import SendRequestV2
from downrange.protocol.headers.topic import CreateTopicRequest
from downrange.protocol.request_codes import RequestCode
from downrange.remoting.client import RemotingClient
from downrange.runtime.blocking import InLine
from downrange.testing.cluster import MemoryCluster

FIRST = ConsumeFromWhere.FIRST_OFFSET


class Site(MemoryCluster):
    """The cluster, with a connection that makes topics and sends."""

    def __init__(
        self,
        root: Path,
        broker_names: Iterable[str] = ("b1",),
        broker_settings: BrokerSettings | None = None,
    ) -> None:
        super().__init__(root, broker_names=tuple(broker_names), broker_settings=broker_settings)
        self.client = RemotingClient(self.network)
        self._instances = itertools.count(1)
        self._keys = itertools.count(1)

    async def __aenter__(self) -> Self:
        await super().__aenter__()
        return self

    async def __aexit__(self, *_: object) -> None:
        self.client.close()
        await super().__aexit__()

    async def create(self, topic: str, queues: int = 1, *, brokers: Iterable[str] = ()) -> None:
        """Make a topic and wait until name servers know it."""
        header = CreateTopicRequest(
            topic=topic,
            default_topic="TBW102",
            read_queue_nums=queues,
            write_queue_nums=queues,
            perm=6,
            topic_filter_type="SINGLE_TAG",
            order=False,
        )
        for name in brokers or self.brokers:
            answer = await self.client.call(
                self.broker_address(name),
                RequestCode.UPDATE_AND_CREATE_TOPIC,
                encode_header(header),
                timeout_s=5,
            )
            assert answer.code == 0, answer
        await pass_time(0.1)

    async def send(
        self,
        topic: str,
        body: bytes,
        queue_id: int = 0,
        *,
        broker: str = "b1",
        properties: str = "",
        at_ms: int | None = None,
        sys_flag: int = 0,
    ) -> None:
        """One message, as a producer sends it."""
        header = SendRequestV2(
            producer_group="producers",
            topic=topic,
            default_topic="TBW102",
            default_topic_queue_nums=4,
            queue_id=queue_id,
            sys_flag=sys_flag,
            born_timestamp=at_ms or self.clock.wall_ms(),
            flag=0,
            properties=f"UNIQ_KEY\x01KEY{next(self._keys):08}\x02{properties}",
        )
        answer = await self.client.call(
            self.broker_address(broker),
            RequestCode.SEND_MESSAGE_V2,
            encode_header(header),
            body,
            timeout_s=5,
        )
        assert answer.code == 0, answer

    async def send_many(
        self, topic: str, count: int, *, queues: int = 1, broker: str = "b1", first: int = 0
    ) -> list[bytes]:
        """Numbered messages, dealt out over the queues."""
        bodies = [b"%d" % number for number in range(first, first + count)]
        for number, body in enumerate(bodies):
            await self.send(topic, body, number % queues, broker=broker)
        return bodies

    def consumer(
        self, group: str = "g", *, client: ClientSettings | None = None, **changes: object
    ) -> PushConsumer:
        """A consumer with a client of its own, which begins at the first message."""
        settings = PushConsumerSettings(**{"consume_from_where": FIRST, **changes})  # type: ignore[arg-type]
        name = f"{next(self._instances):03}"
        client = client or replace(self.client_settings(), instance_name=name)
        return PushConsumer(
            group,
            client=client,
            settings=settings,
            sessions=SessionTable(nonce=1, around=self.surroundings()),
            threads=OnTheLoop(),
            blocking=InLine(),
        )

    async def members(self, group: str, broker: str = "b1") -> list[str]:
        """Who a broker says is in a group."""
        answer = await self.client.call(
            self.broker_address(broker),
            RequestCode.GET_CONSUMER_LIST_BY_GROUP,
            {"consumerGroup": group},
            timeout_s=5,
        )
        if answer.code != 0:
            return []
        return list(decode_body(ConsumerList, answer.body).consumer_id_list)

    def kill(self, consumer: PushConsumer) -> None:
        """What the death of a process is to the others: connections break, nothing is said."""
        run = consumer._running()
        for job in run.session.supervisor._jobs.values():
            job.cancel()
        for job in run.supervisor._jobs.values():
            job.cancel()
        for supervisor in (run.supervisor, run.session.supervisor):
            supervisor._is_stopped = True
            for task in supervisor._tasks:
                task.cancel()
        for connection in run.session.peers._client._connections.values():
            connection.abort()


class Seen:
    """A listener of both kinds that remembers, and does as it is told."""

    def __init__(self) -> None:
        self.messages: list[ReceivedMessage] = []
        self.batches: list[int] = []
        self.times_s: list[float] = []

    @property
    def bodies(self) -> list[bytes]:
        return [message.body for message in self.messages]

    async def __call__(self, batch: Batch, context: ConcurrentContext) -> ConsumeStatus | None:
        del context
        self.take(batch)
        return None

    async def in_order(self, batch: Batch, context: OrderlyContext) -> OrderlyStatus | None:
        del context
        self.take(batch)
        return None

    def take(self, batch: Batch) -> None:
        self.messages += batch
        self.batches.append(len(batch))


async def until(condition: object, timeout_s: float = 60.0) -> None:
    """Let virtual time pass until something is true."""
    assert callable(condition)
    for _ in range(int(timeout_s / 0.05)):
        if condition():
            return
        await pass_time(0.05)
    raise AssertionError(f"not true after {timeout_s} s")
