"""What the name servers hear of a broker, and when."""

import asyncio
from pathlib import Path

import pytest
from unit.broker.one_broker import OneBroker, SlowSyncs, fail, pass_time, small_files

from downrange.broker.registration import ANNOUNCED_WAIT_S
from downrange.broker.settings import BrokerSettings
from downrange.nameserver.server import NameServer
from downrange.nameserver.settings import NameServerSettings
from downrange.protocol.command import Command, response
from downrange.protocol.request_codes import RequestCode
from downrange.protocol.response_codes import ResponseCode
from downrange.remoting.client import RemotingClient
from downrange.remoting.connection import Answer, Connection
from downrange.remoting.server import RemotingServer
from downrange.runtime.disk import Disk
from downrange.runtime.service import Supervisor
from downrange.store.settings import FlushMode
from downrange.testing.virtual_time import VirtualClock, run

NAME_SERVER_PORT = 9876


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
