"""Where a promise of the client is tried: servers of some kind, and clients with names of its own.

A promise is a coroutine function that gets a `World`. It runs against a cluster in memory and
virtual time, against downrange's processes and against Apache RocketMQ without knowing which.
"""

import asyncio
import itertools
import random
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeVar

from downrange.client.consumer_settings import (
    LitePullSettings,
    PullConsumerSettings,
    PushConsumerSettings,
)
from downrange.client.errors import NoRouteError
from downrange.client.listeners import Batch, OnTheLoop
from downrange.client.lite_pull_consumer import LitePullConsumer
from downrange.client.message import ReceivedMessage
from downrange.client.producer import Producer
from downrange.client.pull_consumer import PullConsumer
from downrange.client.push_consumer import PushConsumer
from downrange.client.session import ClientSurroundings, Session
from downrange.client.session_table import SessionTable
from downrange.client.settings import ClientSettings, ProducerSettings
from downrange.client.start_offset import ConsumeFromWhere
from downrange.client.transaction_producer import TransactionListener, TransactionProducer
from downrange.client.wakeup import pause
from downrange.model.names import AUTO_CREATE_TOPIC
from downrange.model.topics import MessageQueue
from downrange.protocol.headers.fields import encode_header
from downrange.protocol.headers.topic import CreateTopicRequest
from downrange.protocol.request_codes import RequestCode
from downrange.remoting.client import RemotingClient
from downrange.runtime.blocking import BlockingRunner

BROKER_NAME = "broker-a"
CLIENT_IP = "127.0.0.1"
CALL_S_MAX = 10.0
WAIT_S_MAX = 60.0
POLL_S = 0.05
FIRST = ConsumeFromWhere.FIRST_OFFSET
T = TypeVar("T")


@dataclass(slots=True)
class World:
    """Belongs to one test; `prefix` keeps its topics and groups apart from those of others."""

    name_servers: tuple[str, ...]
    around: ClientSurroundings
    prefix: str
    folder: Path
    blocking: Callable[[], BlockingRunner]
    _instances: Iterator[int] = field(default_factory=itertools.count)

    def topic(self, name: str = "topic") -> str:
        """A topic of this test."""
        return f"{self.prefix}-{name}"

    def group(self, role: str) -> str:
        """A group of this test."""
        return f"{self.prefix}-{role}"

    def client(self) -> ClientSettings:
        """Settings of one more client: its own connections, its own id; quick to hear of news."""
        return ClientSettings(
            name_servers=self.name_servers,
            client_ip=CLIENT_IP,
            instance_name=f"{self.prefix}-{next(self._instances):03}",
            poll_name_server_interval_s=1.0,
            heartbeat_interval_s=1.0,
            persist_offsets_interval_s=1.0,
        )

    def producer(self, settings: ProducerSettings | None = None) -> Producer:
        """A producer that has not started."""
        return Producer(
            self.group("producers"),
            client=self.client(),
            settings=settings or ProducerSettings(send_timeout_s=CALL_S_MAX),
            sessions=self._sessions(),
        )

    def transaction_producer(self, listener: TransactionListener) -> TransactionProducer:
        """The same with transactions."""
        return TransactionProducer(
            self.group("payers"),
            listener,
            client=self.client(),
            settings=ProducerSettings(send_timeout_s=CALL_S_MAX),
            sessions=self._sessions(),
        )

    def push(self, role: str = "consumers", **settings: object) -> PushConsumer:
        """A push consumer from the first message on, not started."""
        chosen = PushConsumerSettings(
            **{
                "consume_from_where": FIRST,
                "offsets_folder": str(self.folder / f"offsets-{next(self._instances)}"),
                **settings,
            }  # type: ignore[arg-type]
        )
        return PushConsumer(
            self.group(role),
            client=self.client(),
            settings=chosen,
            sessions=self._sessions(),
            threads=OnTheLoop(),
            blocking=self.blocking(),
        )

    def pull(self, role: str = "pullers", **settings: object) -> PullConsumer:
        """A pull consumer."""
        return PullConsumer(
            self.group(role),
            client=self.client(),
            settings=PullConsumerSettings(**settings),  # type: ignore[arg-type]
            sessions=self._sessions(),
            blocking=self.blocking(),
        )

    def lite(self, role: str = "lite", **settings: object) -> LitePullConsumer:
        """A lite pull consumer from the first message on."""
        return LitePullConsumer(
            self.group(role),
            client=self.client(),
            settings=LitePullSettings(**{"consume_from_where": FIRST, **settings}),  # type: ignore[arg-type]
            sessions=self._sessions(),
            blocking=self.blocking(),
        )

    async def create(self, topic: str, queues: int = 4) -> list[MessageQueue]:
        """Make a topic and wait until the name server knows it."""
        header = CreateTopicRequest(
            topic=topic,
            default_topic=AUTO_CREATE_TOPIC,
            read_queue_nums=queues,
            write_queue_nums=queues,
            perm=6,
            topic_filter_type="SINGLE_TAG",
            order=False,
        )
        await self.ask_broker(RequestCode.UPDATE_AND_CREATE_TOPIC, encode_header(header))
        session = Session(self.client(), f"{CLIENT_IP}@{self.prefix}-looks", self.around)
        await session.start()
        try:
            return await self.soon(lambda: self._queues(session, topic))
        finally:
            await session.shutdown()

    async def ask_broker(
        self, code: RequestCode, fields: dict[str, str], body: bytes | None = None
    ) -> None:
        """A request of an administrator, or of a client with a defect."""
        session = Session(self.client(), f"{CLIENT_IP}@{self.prefix}-admin", self.around)
        client = RemotingClient(self.around.network)
        await session.start()
        try:
            await session.routes.refresh(AUTO_CREATE_TOPIC)
            address = session.routes.master_address(BROKER_NAME)
            assert address is not None
            answer = await client.call(address, code, fields, body, timeout_s=CALL_S_MAX)
            assert answer.code == 0, answer
        finally:
            client.close()
            await session.shutdown()

    async def until(self, condition: Callable[[], bool], timeout_s: float = WAIT_S_MAX) -> None:
        """Wait until something is true."""
        deadline_s = self.now_s() + timeout_s
        while not condition():
            assert self.now_s() < deadline_s, f"not true after {timeout_s} s"
            await pause(POLL_S)

    async def soon(
        self, attempt: Callable[[], Awaitable[T | None]], timeout_s: float = WAIT_S_MAX
    ) -> T:
        """Try until something comes of it."""
        deadline_s = self.now_s() + timeout_s
        while (found := await attempt()) is None:
            assert self.now_s() < deadline_s, f"nothing after {timeout_s} s"
            await pause(POLL_S)
        return found

    def now_s(self) -> float:
        """The time that passes here."""
        return asyncio.get_running_loop().time()

    async def pause(self, seconds: float) -> None:
        """Let time pass."""
        await pause(seconds)

    def _sessions(self) -> SessionTable:
        return SessionTable(nonce=random.Random(self.prefix).getrandbits(32), around=self.around)

    @staticmethod
    async def _queues(session: Session, topic: str) -> list[MessageQueue] | None:
        try:
            await session.routes.refresh(topic)
        except NoRouteError:
            return None
        return sorted(session.routes.subscribe_queues(topic)) or None


class Seen:
    """A listener of every kind that remembers what it got."""

    def __init__(self) -> None:
        self.messages: list[ReceivedMessage] = []

    async def __call__(self, batch: Batch, _context: object) -> None:
        """Take a batch."""
        self.messages += batch

    @property
    def bodies(self) -> list[bytes]:
        """In the order of their coming."""
        return [message.body for message in self.messages]


Promise = Callable[[World], Awaitable[None]]
Play = Callable[[Promise], None]
