"""What the name servers hear of a broker, and when."""

import asyncio
import logging
import random
from dataclasses import replace
from pathlib import Path

import pytest
from unit.broker.one_broker import OneBroker, SlowSyncs, fail, pass_time, small_files

from downrange.broker.registration import ANNOUNCED_WAIT_S
from downrange.broker.server import Broker, Surroundings
from downrange.broker.settings import BrokerSettings
from downrange.nameserver.server import NameServer
from downrange.nameserver.settings import NameServerSettings
from downrange.protocol.bodies.json_body import decode_body, encode_body
from downrange.protocol.bodies.route import BrokerData, ClusterInfo
from downrange.protocol.bodies.topics import KvTable
from downrange.protocol.command import Command, response
from downrange.protocol.request_codes import RequestCode
from downrange.protocol.response_codes import ResponseCode
from downrange.remoting.client import RemotingClient
from downrange.remoting.connection import Answer, Connection
from downrange.remoting.memory import MemoryListener, MemoryNetwork
from downrange.remoting.server import RemotingServer
from downrange.runtime.blocking import InLine
from downrange.runtime.disk import Disk
from downrange.runtime.service import Supervisor
from downrange.store.errors import StoreLockedError
from downrange.store.settings import FlushMode
from downrange.testing.virtual_time import VirtualClock, run

NAME_SERVER_PORT = 9876
NAME_SERVER = f"127.0.0.1:{NAME_SERVER_PORT}"
B1 = BrokerSettings(
    address="127.0.0.1", bind_address="127.0.0.1", broker_name="b1", name_servers=NAME_SERVER
)


class SlowNameServer:
    """Takes registrations after a while and keeps their bodies."""

    def __init__(self, delay_s: float) -> None:
        self.delay_s = 0.0
        self._later_delay_s = delay_s
        self.bodies: list[bytes] = []

    async def register(self, request: Command, _: Connection) -> Answer:
        await asyncio.sleep(self.delay_s)  # noqa: TID251 - virtual time
        self.delay_s = self._later_delay_s
        self.bodies.append(request.body or b"")
        return response(request, ResponseCode.SUCCESS)

    def unregister(self, request: Command, _: Connection) -> Answer:
        return response(request, ResponseCode.SUCCESS)


async def send_to_a_new_topic(
    root: Path,
    name_server: SlowNameServer,
    mode: FlushMode = FlushMode.ASYNC,
    disk_s: float = 0.0,
) -> float:
    """Send as the first to a topic; returns how long the answer took."""
    settings = BrokerSettings(
        address="127.0.0.1", broker_name="b1", name_servers=f"127.0.0.1:{NAME_SERVER_PORT}"
    )
    files = small_files(root, flush_mode=mode)
    syncs = SlowSyncs(disk_s)
    broker = OneBroker(root, settings, files, syncs=syncs)
    server = RemotingServer(
        broker.network,
        Supervisor(fail),
        {
            RequestCode.REGISTER_BROKER: name_server.register,
            RequestCode.UNREGISTER_BROKER: name_server.unregister,
        },
    )
    await server.listen("127.0.0.1", NAME_SERVER_PORT)
    loop = asyncio.get_running_loop()
    async with broker:
        started_s = loop.time()
        assert (await broker.send("orders")).code == ResponseCode.SUCCESS
        took_s = loop.time() - started_s
        syncs.seconds = 0.0
        started_s = loop.time()
        assert (await broker.send("orders")).code == ResponseCode.SUCCESS
        assert loop.time() == started_s, "only the first message of a topic waits"
    await server.stop()
    return took_s


def test_a_topic_created_by_a_message_has_a_route_when_the_producer_is_answered(
    tmp_path: Path,
) -> None:
    name_server = SlowNameServer(1.0)

    async def main() -> None:
        took_s = await send_to_a_new_topic(tmp_path, name_server)
        assert took_s == pytest.approx(1.0)
        assert b'"orders"' in name_server.bodies[1]

    run(main())


@pytest.mark.parametrize(("disk_s", "expected_s"), [(0.5, 1.0), (3.0, 3.0)])
def test_in_sync_flush_too_the_topic_has_a_route_and_the_message_is_durable(
    tmp_path: Path, disk_s: float, expected_s: float
) -> None:
    name_server = SlowNameServer(1.0)

    async def main() -> None:
        took_s = await send_to_a_new_topic(tmp_path, name_server, FlushMode.SYNC, disk_s)
        assert took_s == pytest.approx(expected_s)
        assert b'"orders"' in name_server.bodies[1]

    run(main())


def test_a_silent_name_server_does_not_keep_the_producer_waiting(tmp_path: Path) -> None:
    async def main() -> None:
        took_s = await send_to_a_new_topic(tmp_path, SlowNameServer(20.0))
        assert took_s == pytest.approx(ANNOUNCED_WAIT_S)

    run(main())


def test_a_broker_that_was_forgotten_registers_again_by_itself(tmp_path: Path) -> None:
    address = f"127.0.0.1:{NAME_SERVER_PORT}"

    async def main() -> None:
        settings = BrokerSettings(address="127.0.0.1", broker_name="b1", name_servers=address)
        one = OneBroker(tmp_path, settings)
        names_settings = NameServerSettings(
            host="127.0.0.1", port=NAME_SERVER_PORT, kv_config_path=tmp_path / "kv.json"
        )
        names = NameServer(names_settings, one.network, VirtualClock(), Disk(), on_failure=fail)
        await names.start()
        client = RemotingClient(one.network)

        async def route_code() -> int:
            code = RequestCode.GET_ROUTEINFO_BY_TOPIC
            return (await client.call(address, code, {"topic": "TBW102"}, timeout_s=3)).code

        async with one:
            (link,) = one.network.links_to(NAME_SERVER_PORT)
            assert await route_code() == ResponseCode.SUCCESS
            link.is_deaf = True
            await pass_time(119)
            assert await route_code() == ResponseCode.SUCCESS
            await pass_time(10)
            assert await route_code() == ResponseCode.TOPIC_NOT_EXIST
            await pass_time(settings.register_period_ms / 1000)
            assert await route_code() == ResponseCode.SUCCESS
        assert await route_code() == ResponseCode.TOPIC_NOT_EXIST
        client.close()
        await names.stop()

    run(main())


class Net:
    """A name server and any number of brokers on one network in memory."""

    def __init__(self, root: Path) -> None:
        self.network = MemoryNetwork()
        self._root = root
        settings = NameServerSettings(
            host="127.0.0.1", port=NAME_SERVER_PORT, kv_config_path=root / "kv.json"
        )
        self.names = NameServer(settings, self.network, VirtualClock(), Disk(), on_failure=fail)
        self.client = RemotingClient(self.network)

    def broker(
        self, folder: str, settings: BrokerSettings = B1, disk: Disk | None = None
    ) -> Broker:
        surroundings = Surroundings(
            network=self.network,
            clock=VirtualClock(),
            disk=disk or Disk(),
            chance=random.Random(1),
            syncs=InLine(),
            saves=InLine(),
            scrubs=InLine(),
            process_id=7,
        )
        files = small_files(self._root / folder)
        return Broker(settings, files, surroundings, on_failure=fail)

    async def members(self) -> dict[int, str]:
        """Who has the name b1."""
        code = RequestCode.GET_BROKER_CLUSTER_INFO
        answer = await self.client.call(NAME_SERVER, code, timeout_s=3)
        data = decode_body(ClusterInfo, answer.body).broker_addr_table.get("b1")
        return {} if data is None else dict(data.broker_addrs)


class WatchedDisk(Disk):
    """Knows whether anything was created."""

    def __init__(self) -> None:
        self.is_touched = False

    def make_directory(self, path: Path) -> None:
        self.is_touched = True
        super().make_directory(path)


def test_a_broker_whose_port_is_in_use_leaves_the_healthy_one_and_its_own_store_alone(
    tmp_path: Path,
) -> None:
    async def main() -> None:
        net = Net(tmp_path)
        await net.names.start()
        healthy = net.broker("healthy")
        await healthy.start()
        disk = WatchedDisk()
        second = net.broker("second", disk=disk)
        with pytest.raises(OSError, match="10911 is already in use"):
            await second.start()
        await second.stop()
        assert not disk.is_touched, "the store is not read before the port is there"
        assert await net.members() == {0: "127.0.0.1:10911"}
        await healthy.stop()
        assert await net.members() == {}
        await net.names.stop()

    run(main())


def test_a_broker_whose_store_cannot_be_opened_unregisters_nobody(tmp_path: Path) -> None:
    async def main() -> None:
        net = Net(tmp_path)
        await net.names.start()
        healthy = net.broker("same")
        await healthy.start()
        second = net.broker("same", replace(B1, listen_port=10921))
        with pytest.raises(StoreLockedError):
            await second.start()
        await second.stop()
        assert await net.members() == {0: "127.0.0.1:10911"}
        await healthy.stop()
        await net.names.stop()

    run(main())


class BarredDisk(Disk):
    """Tries to connect to the broker whenever its store is opened."""

    def __init__(self, network: MemoryNetwork) -> None:
        self._network = network
        self.is_accepting: list[bool] = []

    def make_directory(self, path: Path) -> None:
        self.is_accepting.append(self._network.doors[10911] is not None)
        super().make_directory(path)


def test_no_connection_is_accepted_before_the_store_is_open(tmp_path: Path) -> None:
    async def main() -> None:
        net = Net(tmp_path)
        disk = BarredDisk(net.network)
        broker = net.broker("one", replace(B1, name_servers=""), disk)
        await broker.start()
        assert disk.is_accepting
        assert not any(disk.is_accepting)
        await net.client.connect("127.0.0.1:10911")
        net.client.close()
        await broker.stop()

    run(main())


def test_a_second_broker_of_the_same_name_is_refused_says_so_and_takes_over_later(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async def main() -> None:
        net = Net(tmp_path)
        await net.names.start()
        first = net.broker("first")
        await first.start()
        second = net.broker("second", replace(B1, listen_port=10921))
        with caplog.at_level(logging.ERROR, "downrange.broker"):
            await second.start()
            await pass_time(100)
        assert await net.members() == {0: "127.0.0.1:10911"}
        assert [one.message for one in caplog.records if "refuses this broker" in one.message] == [
            f"name server {NAME_SERVER} refuses this broker: broker name b1 with brokerId 0 is"
            " already registered by the live broker at 127.0.0.1:10911, so 127.0.0.1:10921 is"
            " refused; give each broker its own brokerName (or brokerId for a slave), or stop one"
            " of the two"
        ]
        code = RequestCode.GET_BROKER_RUNTIME_INFO
        answer = await net.client.call("127.0.0.1:10921", code, timeout_s=3)
        reported = decode_body(KvTable, answer.body).table["registrationClash"]
        assert "already registered by the live broker at 127.0.0.1:10911" in reported
        await first.stop()
        await pass_time(B1.register_period_ms / 1000)
        assert await net.members() == {0: "127.0.0.1:10921"}
        answer = await net.client.call("127.0.0.1:10921", code, timeout_s=3)
        assert "registrationClash" not in decode_body(KvTable, answer.body).table
        await second.stop()
        assert await net.members() == {}
        net.client.close()
        await net.names.stop()

    run(main())


class LastOneWins:
    """A name server that lets every registration replace the one before, as Apache's does."""

    def __init__(self) -> None:
        self.address = ""
        self.ha_address = ""
        self.unregistered: list[str] = []

    async def start(self, network: MemoryNetwork) -> RemotingServer:
        server = RemotingServer(
            network,
            Supervisor(fail),
            {
                RequestCode.REGISTER_BROKER: self.register,
                RequestCode.UNREGISTER_BROKER: self.unregister,
                RequestCode.GET_BROKER_CLUSTER_INFO: self.info,
            },
        )
        await server.listen("127.0.0.1", NAME_SERVER_PORT)
        return server

    def register(self, request: Command, _: Connection) -> Answer:
        self.address = (request.ext_fields or {})["brokerAddr"]
        self.ha_address = (request.ext_fields or {})["haServerAddr"]
        return response(request, ResponseCode.SUCCESS)

    def unregister(self, request: Command, _: Connection) -> Answer:
        self.unregistered.append((request.ext_fields or {})["brokerAddr"])
        return response(request, ResponseCode.SUCCESS)

    def info(self, request: Command, _: Connection) -> Answer:
        data = BrokerData(cluster="c", broker_name="b1", broker_addrs={0: self.address})
        body = encode_body(ClusterInfo(broker_addr_table={"b1": data}))
        return response(request, ResponseCode.SUCCESS, body=body)


def test_a_name_server_that_refuses_nobody_is_watched_for_a_broker_of_the_same_name(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async def main() -> None:
        net = Net(tmp_path)
        names = LastOneWins()
        server = await names.start(net.network)
        broker = net.broker("one", replace(B1, ha_host="10.9.8.7"))
        with caplog.at_level(logging.ERROR, "downrange.broker"):
            await broker.start()
            assert names.ha_address == "10.9.8.7:10912"
            await pass_time(40)
            assert not caplog.records, "its own address is no rival"
            for _ in range(3):
                names.address = "10.0.0.9:10911"
                await pass_time(30)
            assert names.address == "127.0.0.1:10911"
            await pass_time(60)
        (line,) = [one.message for one in caplog.records]
        assert "is used by this broker at 127.0.0.1:10911 and by another at 10.0.0.9:10911" in line
        await broker.stop()
        assert names.unregistered == ["127.0.0.1:10911"]
        await server.stop()

    run(main())


def test_a_broker_that_loses_the_port_at_the_last_moment_unregisters_nobody(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def in_use(_: MemoryListener) -> None:
        raise OSError("another process listens there since a moment ago")

    async def main() -> None:
        net = Net(tmp_path)
        names = LastOneWins()
        server = await names.start(net.network)
        names.address = "127.0.0.1:10911"  # the other one's
        broker = net.broker("one")
        monkeypatch.setattr(MemoryListener, "start", in_use)
        with pytest.raises(OSError, match="since a moment ago"):
            await broker.start()
        await broker.stop()
        assert names.unregistered == []
        await server.stop()

    run(main())
