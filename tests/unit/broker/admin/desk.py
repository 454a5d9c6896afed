"""A broker's administration on real tables and a real store, reached over connections in memory."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path

from unit.store.building import StagedDisk, open_store

from downrange.broker.handlers.admin.config import LiveSettings
from downrange.broker.handlers.admin.config_file import ConfigFile
from downrange.broker.handlers.admin.routes import admin_routes
from downrange.broker.handlers.client import ClientHandler
from downrange.broker.rates import Rates
from downrange.broker.setting_changes import Apply
from downrange.broker.settings import BrokerSettings, StoreFileSettings
from downrange.broker.stats import BrokerStats
from downrange.broker.subscriptions import SubscriptionFilters
from downrange.broker.tables import build_tables
from downrange.protocol.bodies.heartbeat import (
    ConsumerGroup,
    Heartbeat,
    ProducerGroup,
    Subscription,
)
from downrange.protocol.bodies.json_body import encode_body
from downrange.protocol.command import Command
from downrange.protocol.request_codes import RequestCode
from downrange.remoting.client import RemotingClient
from downrange.remoting.connection import Connection, Handler
from downrange.remoting.memory import MemoryNetwork
from downrange.remoting.server import RemotingServer
from downrange.runtime.blocking import InLine
from downrange.runtime.service import Supervisor
from downrange.store.offset_tables import DelayOffsets
from downrange.testing.clock import ManualClock
from downrange.testing.virtual_time import run

PORT = 10911
ADDRESS = f"127.0.0.1:{PORT}"
BROKER = "broker-a"
GROUP = "G"
TOPIC = "T"

Scenario = Callable[["Desk"], Awaitable[None]]


def at_desk(root: Path, scenario: Scenario, *, server_side_reset: bool = True) -> None:
    """Run a scenario in virtual time."""

    async def main() -> None:
        desk = Desk(root, server_side_reset=server_side_reset)
        await desk.start()
        try:
            await scenario(desk)
        finally:
            desk.store.close()

    run(main())


class Desk:
    """Everything that the handlers work on, to be looked at and changed by a test."""

    def __init__(self, root: Path, *, server_side_reset: bool = True) -> None:
        self.clock = clock = ManualClock()
        self.disk = disk = StagedDisk()
        self.store = store = open_store(root / "store", clock, disk)
        self.settings = BrokerSettings(broker_name=BROKER, address="127.0.0.1")
        self.tables = tables = build_tables(
            self.settings,
            store.settings.config_path,
            disk,
            clock,
            InLine(),
            Supervisor(_fail).spawn,
        )
        self.stats = BrokerStats()
        self.rates = Rates(self.stats, clock, self.settings.cluster_name)
        self.delay_offsets = DelayOffsets()
        self.config_path = root / "broker.conf"
        self.live: dict[str, Apply] = {}
        self.live_settings = LiveSettings(
            self.settings,
            StoreFileSettings(root=str(root / "store")),
            ConfigFile(disk, self.config_path),
            clock,
            live=self.live,
            black_list=("regionId",),
        )
        self.registered = 0
        self.handlers: dict[int, Handler] = {
            **admin_routes(
                tables,
                store,
                self.stats,
                self.rates,
                self.live_settings,
                lambda: self.delay_offsets,
                self._register,
                disk,
                clock,
                broker_name=BROKER,
                broker_address=ADDRESS,
                server_side_reset=server_side_reset,
            ),
            **ClientHandler(
                tables.topics,
                tables.groups,
                tables.consumers,
                tables.producers,
                SubscriptionFilters(sql92_enabled=True).filter_of,
                self._announced,
                tables.savers.creations_durable,
            ).routes(),
        }
        self.network = MemoryNetwork()
        self._admin = RemotingClient(self.network)

    async def _register(self) -> None:
        self.registered += 1

    async def _announced(self) -> None:
        """There is no name server to wait for."""

    async def start(self) -> None:
        """Open the door."""
        server = RemotingServer(self.network, Supervisor(_fail), self.handlers)
        await server.listen("127.0.0.1", PORT)

    async def ask(
        self, code: int, body: bytes | None = None, /, **fields: str | int | bool
    ) -> Command:
        """What an admin client gets for a request."""
        texts = {name: _text(value) for name, value in fields.items()}
        return await self._admin.call(ADDRESS, code, texts, body, timeout_s=60)

    async def join(
        self,
        client_id: str,
        group: str | None = GROUP,
        topics: tuple[str, ...] = (TOPIC,),
        *,
        producer_group: str | None = None,
        serves: Mapping[int, Handler] | None = None,
    ) -> Connection:
        """Connect a client that sends a heartbeat; it serves what the broker asks of it."""
        connection = await RemotingClient(self.network, serves).connect(ADDRESS)
        consumer = ConsumerGroup(
            group_name=group or "",
            consume_type="CONSUME_PASSIVELY",
            message_model="CLUSTERING",
            consume_from_where="CONSUME_FROM_LAST_OFFSET",
            subscription_data_set=tuple(
                Subscription(topic=topic, sub_string="*", sub_version=5) for topic in topics
            ),
        )
        heartbeat = Heartbeat(
            client_id=client_id,
            producer_data_set=(ProducerGroup(group_name=producer_group),) if producer_group else (),
            consumer_data_set=(consumer,) if group else (),
        )
        answer = await connection.call(
            RequestCode.HEART_BEAT, None, encode_body(heartbeat), timeout_s=1
        )
        assert answer.code == 0, answer
        return connection

    async def create(self, topic: str = TOPIC, queue_nums: int = 2) -> None:
        """Create a topic as mqadmin does."""
        answer = await self.ask(
            RequestCode.UPDATE_AND_CREATE_TOPIC,
            topic=topic,
            defaultTopic="TBW102",
            readQueueNums=queue_nums,
            writeQueueNums=queue_nums,
            perm=6,
            topicFilterType="SINGLE_TAG",
            topicSysFlag=0,
            order=False,
        )
        assert answer.code == 0, answer

    def put(self, count: int, topic: str = TOPIC, queue_id: int = 0) -> None:
        """Store messages, a second apart, and count them."""
        for number in range(count):
            self.clock.advance(1000)
            appended = self.store.append(topic, queue_id, b"%d" % number, b"")
            self.stats.add_put(topic, 1, appended.size)
        assert self.store.flush_now()
        self.store.dispatch_some()

    def pass_time(self, seconds: int) -> None:
        """Let seconds pass and have each one sampled."""
        for _ in range(seconds):
            self.clock.advance(1000)
            self.rates.sample()


async def turn(count: int = 5) -> None:
    """Let what was sent one way arrive."""
    for _ in range(count):
        loop = asyncio.get_running_loop()
        future = loop.create_future()
        loop.call_soon(future.set_result, None)
        await future


def _text(value: str | int | bool) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def _fail(name: str, error: BaseException) -> None:
    raise AssertionError(name) from error
