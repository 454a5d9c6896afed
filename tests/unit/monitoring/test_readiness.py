"""The probes: what a client would notice, and what only a restart repairs."""

import asyncio
import errno
import json
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import pytest

from downrange.broker.readiness import SYNC_S_MAX, readiness_checks
from downrange.broker.settings import BrokerSettings
from downrange.broker.view import BrokerView
from downrange.monitoring.http_request import Request
from downrange.monitoring.http_server import Page
from downrange.monitoring.observed_broker import ObservedBroker
from downrange.monitoring.observed_nameserver import ObservedNameServer
from downrange.monitoring.pages import HEALTH, READY, Pages
from downrange.monitoring.readiness import Lifecycle, Phase, problems_of
from downrange.nameserver.view import NameServerView
from downrange.protocol.bodies.json_body import decode_body
from downrange.protocol.bodies.topics import KvTable
from downrange.protocol.request_codes import RequestCode
from downrange.remoting.client import RemotingClient
from downrange.runtime.disk import DiskUsage
from downrange.store.errors import AppendRefusedError
from downrange.testing.cluster import MemoryCluster
from downrange.testing.faulty_disk import FaultyDisk
from downrange.testing.virtual_time import run

OK = (200, "ok\n")


class Probes:
    """A cluster in memory and what its probes answer."""

    def __init__(self, root: Path, settings: BrokerSettings) -> None:
        self.disk = FaultyDisk()
        self.lifecycle = Lifecycle(Phase.SERVING)
        self.cluster = MemoryCluster(root, disk=self.disk, broker_settings=settings)
        self._pages = Pages(
            (
                ObservedNameServer(self._name_server_view),
                ObservedBroker("b1", self._view, self.disk, self.cluster.clock),
            ),
            self.lifecycle,
        ).by_path()

    def _name_server_view(self) -> NameServerView | None:
        return self.cluster.name_servers[0].view()

    def _view(self) -> BrokerView | None:
        broker = self.cluster.brokers.get("b1")
        return None if broker is None else broker.view()

    @property
    def view(self) -> BrokerView:
        view = self._view()
        assert view is not None
        return view

    def get(self, path: str, *, accepts_json: bool = False) -> tuple[int, str]:
        answers: list[Page] = []
        self._pages[path](Request("GET", path, accepts_json=accepts_json), answers.append)
        (page,) = answers
        return page.status, page.body.decode()

    def send(self) -> None:
        self.view.store.append("orders", 0, b"x" * 1000, b"")

    def reason(self) -> str:
        """Why it is not ready, but healthy."""
        assert self.get(HEALTH) == OK
        status, text = self.get(READY)
        assert status == 503
        return text


def with_probes(
    root: Path,
    work: Callable[[Probes], Awaitable[None]],
    settings: BrokerSettings | None = None,
) -> None:
    async def main() -> None:
        probes = Probes(root, settings or BrokerSettings())
        async with probes.cluster:
            await work(probes)

    run(main())


async def pause(seconds: float) -> None:
    waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
    asyncio.get_running_loop().call_later(seconds, waiter.set_result, None)
    await waiter


def test_a_cluster_that_serves_is_healthy_and_ready(tmp_path: Path) -> None:
    async def work(probes: Probes) -> None:
        assert probes.get(HEALTH) == probes.get(READY) == OK

    with_probes(tmp_path, work)


def test_a_full_disk_is_not_ready_until_there_is_space_again(tmp_path: Path) -> None:
    async def work(probes: Probes) -> None:
        probes.disk.reported_usage = DiskUsage(total_bytes=100, free_bytes=1)
        await pause(30)
        assert "b1: sends are refused" in probes.reason()
        assert "99.0% full" in probes.reason()
        probes.disk.heal()
        await pause(30)
        assert probes.get(READY) == OK

    with_probes(tmp_path, work)


def test_a_log_that_cannot_grow_is_not_ready_until_the_disk_allows_it(tmp_path: Path) -> None:
    """The disk need not look full: a quota, or another process that took the rest."""

    async def work(probes: Probes) -> None:
        probes.disk.fail("allocate", errno.ENOSPC, path_contains="commitlog")
        with suppress(AppendRefusedError):
            for _ in range(100_000):
                probes.send()
        assert "sends are refused: no room for" in probes.reason()
        assert "No space left on device" in probes.reason()
        probes.disk.heal()
        assert probes.get(READY) == OK  # without another message

    with_probes(tmp_path, work)


def test_a_table_that_cannot_be_saved_is_not_ready_until_it_was(tmp_path: Path) -> None:
    async def work(probes: Probes) -> None:
        probes.disk.fail("write", errno.EIO, path_contains="topics.json")
        probes.view.tables.topics.create_for_send_back("new", 1)
        await pause(1)
        assert "b1: new topics and groups are refused: the table of topics" in probes.reason()
        assert "Input/output error" in probes.reason()
        probes.disk.heal()
        await pause(10)
        assert probes.get(READY) == OK

    with_probes(tmp_path, work)


def test_a_message_that_was_taken_proves_that_there_is_room(tmp_path: Path) -> None:
    async def work(probes: Probes) -> None:
        probes.disk.fail("allocate", errno.ENOSPC, path_contains="commitlog", times=1)
        with suppress(AppendRefusedError):
            for _ in range(100_000):
                probes.send()
        probes.send()
        calls = probes.disk.calls["allocate"]
        assert probes.get(READY) == OK
        assert probes.disk.calls["allocate"] == calls

    with_probes(tmp_path, work)


def test_messages_that_do_not_become_visible_are_not_ready(tmp_path: Path) -> None:
    async def work(probes: Probes) -> None:
        probes.disk.fail("open_file", errno.EMFILE, path_contains="consumequeue")
        probes.send()
        probes.view.store.dispatch_some()
        assert "Too many open files" in probes.reason()
        probes.disk.heal()
        probes.view.store.dispatch_some()
        assert probes.get(READY) == OK

    with_probes(tmp_path, work)


def test_a_log_that_could_not_be_synced_is_not_healthy(tmp_path: Path) -> None:
    """The store is read-only for good, so a restart is what helps."""

    async def work(probes: Probes) -> None:
        probes.send()
        probes.disk.fail("sync", errno.EIO)
        probes.view.store.flush_now()
        probes.disk.heal()
        for page in (HEALTH, READY):
            status, text = probes.get(page)
            assert status == 503
            (line,) = text.splitlines()
            assert line.startswith("b1: read-only, the log could not be synced")
            assert "restart" in line

    with_probes(tmp_path, work)


@pytest.mark.parametrize(
    ("permission", "reason"),
    [
        (4, "producers are sent elsewhere: brokerPermission is 4"),
        (2, "pulls are refused: brokerPermission is 2"),
        (0, "producers are sent elsewhere and pulls are refused: brokerPermission is 0"),
    ],
)
def test_a_broker_that_permits_less_is_not_ready(
    tmp_path: Path, permission: int, reason: str
) -> None:
    async def work(probes: Probes) -> None:
        assert reason in probes.reason()

    with_probes(tmp_path, work, BrokerSettings(permission=permission))


def test_a_broker_that_clients_cannot_find_is_not_ready(tmp_path: Path) -> None:
    async def work(probes: Probes) -> None:
        server = probes.cluster.name_servers[0]
        await probes.cluster.stop_name_server()
        probes.cluster.name_servers[0] = server
        await pause(60)
        assert "b1: clients cannot find it" in probes.reason()
        assert "name server: not serving" in probes.reason()
        await probes.cluster.start_name_server()
        await pause(60)
        assert probes.get(READY) == OK

    with_probes(tmp_path, work)


def test_a_sync_that_does_not_end_is_not_ready(tmp_path: Path) -> None:
    async def work(probes: Probes) -> None:
        slow = replace(probes.view, sync_wait_s=SYNC_S_MAX)
        assert list(problems_of("b1", readiness_checks(slow))) == []
        hanging = replace(probes.view, sync_wait_s=SYNC_S_MAX + 1)
        (problem,) = problems_of("b1", readiness_checks(hanging))
        assert problem.reason == "sends time out: the disk has not finished a sync for 11 s"

    with_probes(tmp_path, work)


def test_a_process_is_ready_between_its_start_and_its_stop(tmp_path: Path) -> None:
    async def work(probes: Probes) -> None:
        probes.lifecycle.phase = Phase.STARTING
        assert probes.reason().startswith("process: starting")
        probes.lifecycle.phase = Phase.STOPPING
        assert probes.reason() == "process: shutting down\n"
        probes.lifecycle.phase = Phase.SERVING
        await probes.cluster.stop_broker("b1")
        assert probes.reason() == "b1: not serving\n"

    with_probes(tmp_path, work)


def test_programs_get_the_reasons_as_json(tmp_path: Path) -> None:
    async def work(probes: Probes) -> None:
        assert json.loads(probes.get(READY, accepts_json=True)[1]) == {
            "status": "ok",
            "problems": [],
        }
        await probes.cluster.stop_broker("b1")
        status, text = probes.get(READY, accepts_json=True)
        assert (status, json.loads(text)) == (
            503,
            {
                "status": "failed",
                "problems": [{"server": "b1", "check": "serving", "reason": "not serving"}],
            },
        )

    with_probes(tmp_path, work)


def test_administrators_are_told_the_same_as_probes(tmp_path: Path) -> None:
    """`downrange doctor` reads it from GET_BROKER_RUNTIME_INFO."""

    async def work(probes: Probes) -> None:
        client = RemotingClient(probes.cluster.network)

        async def told() -> str | None:
            address, code = probes.cluster.broker_address("b1"), RequestCode.GET_BROKER_RUNTIME_INFO
            answer = await client.call(address, code, {}, timeout_s=3)
            return decode_body(KvTable, answer.body).table.get("notReady")

        assert await told() is None
        probes.disk.fail("allocate", errno.ENOSPC, path_contains="commitlog")
        with suppress(AppendRefusedError):
            for _ in range(100_000):
                probes.send()
        text = await told()
        assert text is not None
        assert probes.reason() == f"b1: {text}\n"
        probes.disk.heal()
        assert await told() is None
        client.close()

    with_probes(tmp_path, work)
