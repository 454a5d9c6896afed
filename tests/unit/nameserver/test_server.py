"""A name server as a whole: time passes, connections break, brokers are told."""

import asyncio
from dataclasses import replace
from pathlib import Path

import pytest
from unit.nameserver.building import (
    MASTER,
    NAME_SERVER,
    SLAVE,
    Cluster,
    pass_time,
    register_fields,
    registration,
    with_name_server,
)

from downrange.nameserver.server import NameServer
from downrange.nameserver.settings import NameServerSettings
from downrange.protocol.bodies.registration import encode_registration
from downrange.protocol.command import Command
from downrange.protocol.request_codes import RequestCode as Code
from downrange.protocol.response_codes import ResponseCode
from downrange.remoting.client import RemotingClient
from downrange.remoting.connection import Answer, Connection, Handler
from downrange.remoting.errors import ConnectError
from downrange.remoting.memory import MemoryNetwork
from downrange.remoting.server import RemotingServer
from downrange.runtime.disk import Disk
from downrange.runtime.service import Supervisor
from downrange.testing.virtual_time import VirtualClock, run


def test_a_silent_broker_is_dropped_after_two_minutes_and_its_connection_closed(
    tmp_path: Path,
) -> None:
    async def test(cluster: Cluster) -> None:
        broker = RemotingClient(cluster.network)
        await cluster.register(MASTER, client=broker)
        connection = await broker.connect(NAME_SERVER)
        # Any request keeps the connection open; only what names the broker keeps it registered.
        for _ in range(4):
            await pass_time(29.9)
            await cluster.ask(Code.GET_BROKER_CLUSTER_INFO, client=broker)
        assert await cluster.route("T") is not None
        await pass_time(6)
        assert await cluster.route("T") is None
        assert connection.is_closed

    with_name_server(tmp_path, test)


@pytest.mark.parametrize("code", [Code.BROKER_HEARTBEAT, Code.QUERY_DATA_VERSION])
def test_heartbeats_and_version_queries_keep_a_broker_alive(tmp_path: Path, code: Code) -> None:
    async def test(cluster: Cluster) -> None:
        await cluster.register(MASTER)
        for _ in range(20):
            await pass_time(30)
            await cluster.ask(code, register_fields(MASTER))
        assert await cluster.route("T") is not None

    with_name_server(tmp_path, test)


def test_a_broker_may_ask_to_be_dropped_sooner(tmp_path: Path) -> None:
    async def test(cluster: Cluster) -> None:
        await cluster.register(MASTER, heartbeatTimeoutMillis="1000")
        await pass_time(4.9)
        assert await cluster.route("T") is not None  # the scan comes every five seconds
        await pass_time(0.2)
        assert await cluster.route("T") is None

    with_name_server(tmp_path, test)


def test_a_broken_connection_drops_its_broker_at_once(tmp_path: Path) -> None:
    async def test(cluster: Cluster) -> None:
        broker = RemotingClient(cluster.network)
        await cluster.register(MASTER, client=broker)
        await cluster.register(SLAVE)
        broker.close()
        await pass_time(0.001)
        route = await cluster.route("T")
        assert route is not None
        assert [b.broker_addrs for b in route.broker_datas] == [{1: SLAVE.address}]

    with_name_server(tmp_path, test)


class ToldBroker:
    """The door of a broker that writes down what it is told."""

    def __init__(self, network: MemoryNetwork) -> None:
        self.told: list[dict[str, str] | None] = []
        self._network = network

    async def open(self, port: int) -> None:
        handlers: dict[int, Handler] = {Code.NOTIFY_MIN_BROKER_ID_CHANGE: self._take}
        server = RemotingServer(self._network, Supervisor(lambda *_: None), handlers)
        await server.listen("10.0.0.2", port)

    def _take(self, request: Command, _: Connection) -> Answer:
        assert request.is_one_way
        self.told.append(request.ext_fields)
        return None


def test_the_slave_hears_that_its_master_came_and_went(tmp_path: Path) -> None:
    slave = replace(SLAVE, address="10.0.0.2:20911")

    async def test(cluster: Cluster) -> None:
        door = ToldBroker(cluster.network)
        await door.open(20911)
        master = RemotingClient(cluster.network)
        await cluster.register(slave, enableActingMaster="true")
        await cluster.register(MASTER, client=master, enableActingMaster="true")
        await pass_time(0.1)
        master.close()
        await pass_time(0.1)
        assert door.told == [
            {
                "minBrokerId": "0",
                "minBrokerAddr": MASTER.address,
                "haBrokerAddr": MASTER.ha_address,
            },
            {
                "minBrokerId": "1",
                "minBrokerAddr": slave.address,
                "offlineBrokerAddr": MASTER.address,
            },
        ]

    with_name_server(tmp_path, test, NameServerSettings(notify_min_broker_id_changed=True))


def test_a_broker_that_cannot_be_told_does_no_harm(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async def test(cluster: Cluster) -> None:
        for broker_id, address in ((2, "10.0.0.2:1"), (3, "no address"), (1, "10.0.0.3:1")):
            await cluster.register(replace(MASTER, broker_id=broker_id, address=address))
        await pass_time(1)
        assert (await cluster.ask(Code.GET_BROKER_CLUSTER_INFO)).code == 0

    with_name_server(tmp_path, test, NameServerSettings(notify_min_broker_id_changed=True))
    assert "address=10.0.0.2:1: cannot connect to 10.0.0.2:1" in caplog.text
    assert "address=no address: 'no address' is not host:port" in caplog.text


def test_nobody_is_told_unless_switched_on(tmp_path: Path) -> None:
    async def test(cluster: Cluster) -> None:
        door = ToldBroker(cluster.network)
        await door.open(10911)
        await cluster.register(SLAVE, enableActingMaster="true")
        await cluster.register(MASTER, enableActingMaster="true")
        await pass_time(1)
        assert door.told == []

    with_name_server(tmp_path, test)


def test_two_name_servers_know_what_they_are_told_and_nothing_of_each_other(
    tmp_path: Path,
) -> None:
    async def main() -> None:
        network = MemoryNetwork()
        servers = []
        for port in (9876, 9877):
            settings = NameServerSettings(port=port, kv_config_path=tmp_path / f"{port}.json")
            servers.append(NameServer(settings, network, VirtualClock(), Disk()))
            await servers[-1].start()
        broker, client = RemotingClient(network), RemotingClient(network)
        body = encode_registration(registration(), compressed=False)

        async def codes() -> list[int]:
            return [
                (
                    await client.call(
                        f"127.0.0.1:{port}",
                        Code.GET_ROUTEINFO_BY_TOPIC,
                        {"topic": "T"},
                        timeout_s=1,
                    )
                ).code
                for port in (9876, 9877)
            ]

        for port, expected in ((9876, [0, 17]), (9877, [0, 0])):
            address = f"127.0.0.1:{port}"
            fields = register_fields(MASTER)
            await broker.call(address, Code.REGISTER_BROKER, fields, body, timeout_s=1)
            assert await codes() == expected
        broker.close("127.0.0.1:9876")
        await pass_time(0.001)
        assert await codes() == [17, 0]
        await servers[0].stop()
        with pytest.raises(ConnectError):
            await RemotingClient(network).connect("127.0.0.1:9876")
        assert (await client.call("127.0.0.1:9877", Code.GET_NAMESRV_CONFIG, timeout_s=1)).code == 0
        await servers[1].stop()

    run(main())


def test_a_stopped_name_server_leaves_nothing_running(tmp_path: Path) -> None:
    async def test(cluster: Cluster) -> None:
        await cluster.register(MASTER)
        await cluster.server.stop()
        assert cluster.server._supervisor.names == []
        with pytest.raises(ConnectError):
            await RemotingClient(cluster.network).connect(NAME_SERVER)

    with_name_server(tmp_path, test)


def test_a_graceful_stop_sends_clients_away(tmp_path: Path) -> None:
    async def main() -> None:
        settings = NameServerSettings(stops_gracefully=True, stop_wait_s=5)
        cluster = Cluster(tmp_path, settings, 9876)
        await cluster.server.start()
        connection = await cluster.client.connect(NAME_SERVER)
        stopping = asyncio.ensure_future(cluster.server.stop())
        await pass_time(1)
        answer = await connection.call(Code.GET_BROKER_CLUSTER_INFO, timeout_s=3)
        assert answer.code == ResponseCode.GO_AWAY
        await stopping
        assert connection.is_closed

    run(main())
