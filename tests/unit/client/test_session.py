"""A session against a cluster in memory: starting, routes, heartbeats, name servers that fail."""

import asyncio
import os
from collections.abc import Iterable
from pathlib import Path

import pytest
from unit.broker.one_broker import pass_time

from downrange.client.client_id import process_id
from downrange.client.errors import (
    ClientStateError,
    DuplicateGroupError,
    NoNameServerError,
    NoRouteCause,
    NoRouteError,
)
from downrange.client.session import ClientSurroundings, ServiceState, Session
from downrange.client.session_table import SessionTable
from downrange.client.settings import ClientSettings
from downrange.model.topics import MessageQueue
from downrange.protocol.bodies.heartbeat import ConsumerGroup, ProducerGroup, Subscription
from downrange.testing.cluster import MemoryCluster
from downrange.testing.virtual_time import run


class Somebody:
    """A participant that remembers what it was told."""

    def __init__(self, group: str, *, topics: tuple[str, ...] = (), consumes: bool = False) -> None:
        self.group = group
        self._topics = topics
        self._consumes = consumes
        self.changed: list[str] = []
        self.rebalanced = 0
        self.persisted = 0

    def heartbeat(self) -> ProducerGroup | ConsumerGroup:
        if not self._consumes:
            return ProducerGroup(group_name=self.group)
        return ConsumerGroup(
            group_name=self.group,
            consume_type="CONSUME_PASSIVELY",
            message_model="CLUSTERING",
            consume_from_where="CONSUME_FROM_LAST_OFFSET",
            subscription_data_set=tuple(
                Subscription(topic=topic, sub_string="*") for topic in self._topics
            ),
        )

    def topics(self) -> Iterable[str]:
        return self._topics

    def on_routes_changed(self, topic: str) -> None:
        self.changed.append(topic)

    async def persist_offsets(self) -> None:
        self.persisted += 1

    def rebalance_soon(self) -> None:
        self.rebalanced += 1


def session_of(cluster: MemoryCluster, client_id: str = "10.0.0.1@1") -> Session:
    return Session(cluster.client_settings(), client_id, cluster.surroundings())


def test_a_session_learns_routes_and_greets_the_brokers(tmp_path: Path) -> None:
    async def main() -> None:
        async with MemoryCluster(tmp_path, broker_names=("a", "b")) as cluster:
            session = session_of(cluster)
            consumer = Somebody("g", topics=("TBW102",), consumes=True)
            session.register(consumer)
            await session.start()
            await pass_time(2)
            assert consumer.changed == ["TBW102"]
            assert session.routes.brokers == {
                "a": {0: "127.0.0.1:10911"},
                "b": {0: "127.0.0.1:10921"},
            }
            assert len(session.routes.publish_queues("TBW102")) == 16
            assert session.routes.subscribe_queues("TBW102")[0] == MessageQueue("TBW102", "a", 0)
            for name in "ab":
                ids = await session.calls.consumer_ids(cluster.broker_address(name), "g")
                assert ids == ["10.0.0.1@1"]
            assert session.heartbeats.versions.keys() == {"127.0.0.1:10911", "127.0.0.1:10921"}
            await pass_time(60)
            assert consumer.changed == ["TBW102"], "only a changed route is told"
            assert consumer.persisted >= 10
            await session.shutdown()
            other = session_of(cluster, "10.0.0.1@2")
            await other.start()
            assert await other.calls.consumer_ids("127.0.0.1:10911", "g") == []
            await other.shutdown()

    run(main())


def test_one_group_of_each_kind_in_a_session(tmp_path: Path) -> None:
    async def main() -> None:
        async with MemoryCluster(tmp_path) as cluster:
            session = session_of(cluster)
            session.register(Somebody("g"))
            session.register(Somebody("g", consumes=True))
            with pytest.raises(DuplicateGroupError, match="another instance_name"):
                session.register(Somebody("g"))

    run(main())


def test_a_consumer_hears_of_a_lost_and_returned_broker(tmp_path: Path) -> None:
    async def main() -> None:
        async with MemoryCluster(tmp_path, broker_names=("a", "b")) as cluster:
            session = session_of(cluster)
            consumer = Somebody("g", topics=("TBW102",), consumes=True)
            session.register(consumer)
            await session.start()
            await pass_time(2)
            await cluster.stop_broker("b")
            await pass_time(35)
            assert consumer.changed == ["TBW102", "TBW102"]
            assert list(session.routes.brokers) == ["a"]
            consumer.rebalanced = 0
            await cluster.start_broker("b")
            await pass_time(61)
            assert consumer.changed == ["TBW102"] * 3
            assert consumer.rebalanced >= 1, "a new connection means a new member list"
            ids = await session.calls.consumer_ids(cluster.broker_address("b"), "g")
            assert ids == ["10.0.0.1@1"]
            await session.shutdown()

    run(main())


def test_an_unknown_topic_says_so(tmp_path: Path) -> None:
    async def main() -> None:
        async with MemoryCluster(tmp_path) as cluster:
            session = session_of(cluster)
            await session.start()
            with pytest.raises(NoRouteError, match="do not know the topic") as caught:
                await session.routes.refresh("nowhere")
            assert caught.value.cause is NoRouteCause.TOPIC_UNKNOWN
            assert caught.value.code == 10005
            await session.shutdown()

    run(main())


def test_another_name_server_is_asked_when_one_is_down(tmp_path: Path) -> None:
    async def main() -> None:
        async with MemoryCluster(tmp_path, name_server_count=2) as cluster:
            for gone in (0, 1):
                session = session_of(cluster)
                await session.start()
                await cluster.stop_name_server(gone)
                assert await session.routes.refresh("TBW102")
                await session.shutdown()
                await cluster.start_name_server(gone)
                await pass_time(31)  # until the brokers have registered there again

    run(main())


def test_a_deaf_name_server_costs_its_share_of_the_time(tmp_path: Path) -> None:
    async def main() -> None:
        async with MemoryCluster(tmp_path, name_server_count=2) as cluster:
            session = session_of(cluster)
            await session.start()
            first = session.name_servers.addresses[0]
            await session.peers.connect(first)
            for link in cluster.network.links_to(int(first.partition(":")[2])):
                link.is_deaf = True
            loop = asyncio.get_running_loop()
            started_s = loop.time()
            assert await session.routes.refresh("TBW102")
            assert loop.time() - started_s <= 1.6
            await session.shutdown()

    run(main())


def test_no_name_server_at_all_is_one_clear_error_in_time(tmp_path: Path) -> None:
    async def main() -> None:
        async with MemoryCluster(tmp_path) as cluster:
            session = session_of(cluster)
            await session.start()
            await cluster.stop_name_server()
            with pytest.raises(NoNameServerError, match="none of 1 name servers answers") as caught:
                await session.routes.refresh("TBW102")
            assert caught.value.code == 10004
            nowhere = Session(ClientSettings(client_ip="10.0.0.1"), "x", cluster.surroundings())
            await nowhere.start()
            with pytest.raises(NoNameServerError, match="set name_servers"):
                await nowhere.routes.refresh("TBW102")
            await nowhere.shutdown()
            await session.shutdown()

    run(main())


def test_routes_stay_while_the_name_server_is_away(tmp_path: Path) -> None:
    async def main() -> None:
        async with MemoryCluster(tmp_path) as cluster:
            session = session_of(cluster)
            session.register(Somebody("g", topics=("TBW102",)))
            await session.start()
            await pass_time(2)
            await cluster.stop_name_server()
            await pass_time(300)
            assert session.routes.publish_queues("TBW102")
            assert session.routes.master_address("b1") == "127.0.0.1:10911"
            await session.shutdown()

    run(main())


def test_questions_at_the_same_time_are_asked_once(tmp_path: Path) -> None:
    async def main() -> None:
        async with MemoryCluster(tmp_path) as cluster:
            session = session_of(cluster)
            await session.start()
            asked: list[int] = []
            ask = session.name_servers.ask

            async def counted(code: int, *args: object, timeout_s: float) -> object:
                asked.append(code)
                return await ask(code, *args, timeout_s=timeout_s)  # type: ignore[arg-type]

            session.name_servers.ask = counted  # type: ignore[assignment,method-assign]
            changed = await asyncio.gather(*(session.routes.refresh("TBW102") for _ in range(9)))
            assert len(asked) == 1
            assert sum(changed) == 1
            await session.shutdown()

    run(main())


def test_name_servers_are_looked_up_and_looked_up_again(tmp_path: Path) -> None:
    async def main() -> None:
        async with MemoryCluster(tmp_path) as cluster:
            texts = ["127.0.0.1:9876\nrest", "", "10.9.9.9:1;10.9.9.8:2"]
            asked: list[str] = []

            async def fetch(address: str, _timeout_s: float) -> str:
                asked.append(address)
                text = texts[min(len(asked), 3) - 1]
                if not text:
                    raise OSError("no such host")
                return text

            around = ClientSurroundings(
                network=cluster.network, clock=cluster.clock, chance=cluster.chance, fetch=fetch
            )
            settings = ClientSettings(name_server_lookup="http://where/nsaddr", unit_name="u")
            session = Session(settings, "x", around)
            await session.start()
            assert await session.routes.refresh("TBW102")
            await pass_time(11)
            assert session.name_servers.addresses == ("127.0.0.1:9876",)
            await pass_time(120)
            assert set(session.name_servers.addresses) == {"10.9.9.9:1", "10.9.9.8:2"}
            assert asked == ["http://where/nsaddr-u?nofix=1"] * 3
            await session.shutdown()

    run(main())


def test_a_start_without_name_servers_fails_and_stays_failed(tmp_path: Path) -> None:
    async def main() -> None:
        async with MemoryCluster(tmp_path) as cluster:

            async def fetch(_address: str, _timeout_s: float) -> str:
                raise OSError("no such host")

            around = ClientSurroundings(
                network=cluster.network, clock=cluster.clock, chance=cluster.chance, fetch=fetch
            )
            session = Session(ClientSettings(name_server_lookup="http://where"), "x", around)
            with pytest.raises(NoNameServerError, match="no such host"):
                await session.start()
            assert session.state is ServiceState.START_FAILED
            with pytest.raises(ClientStateError, match="make a new one"):
                await session.start()
            with pytest.raises(ClientStateError, match="START_FAILED"):
                session.check_usable()

    run(main())


def test_equal_settings_share_a_session_until_the_last_leaves(tmp_path: Path) -> None:
    async def main() -> None:
        async with MemoryCluster(tmp_path) as cluster:
            table = SessionTable(nonce=7, around=cluster.surroundings())
            settings = cluster.client_settings()
            first, second = table.acquire(settings), table.acquire(settings)
            assert first is second
            other = table.acquire(ClientSettings(name_servers="x:1", client_ip="10.0.0.1"))
            assert other.client_id != first.client_id
            kept = table.acquire(settings, keep_instance_name=True)
            assert kept.client_id == "10.0.0.1@DEFAULT"
            await first.start()
            await table.release(first)
            first.check_usable()
            await table.release(first)
            with pytest.raises(ClientStateError, match="SHUTDOWN_ALREADY"):
                first.check_usable()
            assert table.acquire(settings) is not first

    run(main())


def test_after_a_fork_there_is_a_clear_error_or_a_new_session(tmp_path: Path) -> None:
    async def main() -> None:
        async with MemoryCluster(tmp_path) as cluster:
            process_ids = [41]
            around = ClientSurroundings(
                network=cluster.network,
                clock=cluster.clock,
                chance=cluster.chance,
                process_id=lambda: process_ids[-1],
            )
            table = SessionTable(nonce=7, around=around)
            session = table.acquire(cluster.client_settings())
            await session.start()
            session.check_usable()
            process_ids.append(42)
            with pytest.raises(ClientStateError, match="fork"):
                session.check_usable()
            again = table.acquire(cluster.client_settings())
            assert again is not session
            assert again.client_id == "10.0.0.1@42#7"
            await again.start()
            assert await again.routes.refresh("TBW102")
            await again.shutdown()

    run(main())


def test_heartbeats_of_version_2_leave_out_what_is_known(tmp_path: Path) -> None:
    async def main() -> None:
        async with MemoryCluster(tmp_path) as cluster:
            settings = ClientSettings(
                name_servers=cluster.name_server_addresses, client_ip="10.0.0.1", heartbeat_v2=True
            )
            session = Session(settings, "c@1", cluster.surroundings())
            consumer = Somebody("g", topics=("TBW102",), consumes=True)
            session.register(consumer)
            await session.start()
            await pass_time(200)
            address = cluster.broker_address("b1")
            assert await session.calls.consumer_ids(address, "g") == ["c@1"]
            await session.shutdown()

    run(main())


def test_a_child_knows_that_it_is_another_process() -> None:
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        os.write(writer, b"%d" % process_id())
        os._exit(0)
    os.waitpid(child, 0)
    assert int(os.read(reader, 32)) == child
    assert process_id() == os.getpid()
    os.close(reader)
    os.close(writer)
