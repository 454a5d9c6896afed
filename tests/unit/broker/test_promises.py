"""What a broker has answered is on disk: it survives a kill, and a failing disk is no success."""

import asyncio
import errno
import gc
import json
import shutil
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import TypeVar

import pytest
from unit.broker.one_broker import OneBroker, fail, small_files
from unit.broker.promises import (
    PROMISES,
    TOPIC,
    Promise,
    bodies,
    create_topic,
    has_topic,
    heartbeat,
    prepare,
    tables_of,
)
from unit.broker.test_registration import NAME_SERVER_PORT, SlowNameServer
from unit.broker.test_table_saver import HeldRunner, turns

from downrange.broker.settings import BrokerSettings
from downrange.broker.table_saver import WAIT_S_MAX
from downrange.protocol.request_codes import RequestCode
from downrange.protocol.response_codes import ResponseCode
from downrange.remoting.server import RemotingServer
from downrange.runtime.blocking import InLine
from downrange.runtime.service import Supervisor
from downrange.store.settings import FlushMode
from downrange.testing.faulty_disk import FaultyDisk
from downrange.testing.power_cut_disk import PowerCutDisk
from downrange.testing.virtual_time import run

T = TypeVar("T")
EACH = pytest.mark.parametrize("promise", PROMISES.values(), ids=PROMISES)


@EACH
@pytest.mark.parametrize("mode", FlushMode)
def test_what_was_answered_survives_a_kill(
    tmp_path: Path, promise: Promise, mode: FlushMode
) -> None:
    async def main() -> None:
        files = small_files(tmp_path, flush_mode=mode)
        killed = OneBroker(tmp_path, store_files=files)
        await killed.broker.start()
        await prepare(killed)
        answer = await promise.ask(killed)
        assert answer.code == ResponseCode.SUCCESS, answer
        killed.client.close()
        await killed.broker.crash()
        async with OneBroker(tmp_path, store_files=files) as broker:
            assert await promise.is_kept(broker)

    run(main())


@EACH
def test_what_was_answered_under_sync_flush_survives_a_power_failure_in_the_first_life_of_a_store(
    tmp_path: Path, promise: Promise
) -> None:
    async def main() -> None:
        disk = PowerCutDisk(tmp_path)
        files = small_files(tmp_path / "var", flush_mode=FlushMode.SYNC)
        first = OneBroker(tmp_path, store_files=files, disk=disk)
        await first.broker.start()
        await prepare(first)
        answer = await promise.ask(first)
        assert answer.code == ResponseCode.SUCCESS, answer
        first.client.close()
        await first.broker.crash()
        gc.collect()  # mappings that a message still looked at
        disk.cut_power()
        async with OneBroker(tmp_path, store_files=files, disk=disk) as broker:
            assert (
                await bodies(broker, TOPIC) == [b"0", b"1"] or promise is PROMISES["delete a topic"]
            )
            assert await promise.is_kept(broker)

    run(main())


@EACH
@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EIO])
def test_nothing_is_promised_while_the_tables_cannot_be_saved(
    tmp_path: Path, promise: Promise, number: int
) -> None:
    async def main() -> None:
        disk = FaultyDisk()
        broker = OneBroker(tmp_path, disk=disk)
        await broker.broker.start()
        await prepare(broker)
        disk.fail("write", number, path_contains="/config/")
        for _ in range(2):
            answer = await promise.ask(broker)
            assert answer.code == ResponseCode.SYSTEM_ERROR, answer
            assert str(OSError(number, ""))[:10] in (answer.remark or "")
        disk.heal()
        answer = await promise.ask(broker)
        assert answer.code == ResponseCode.SUCCESS, answer
        broker.client.close()
        await broker.broker.crash()
        async with OneBroker(tmp_path) as again:
            assert await promise.is_kept(again)

    run(main())


def test_a_topic_that_is_not_on_disk_takes_no_message_and_gets_no_route(tmp_path: Path) -> None:
    async def main() -> None:
        disk, name_server = FaultyDisk(), SlowNameServer(0.0)
        settings = BrokerSettings(
            address="127.0.0.1", broker_name="b1", name_servers=f"127.0.0.1:{NAME_SERVER_PORT}"
        )
        broker = OneBroker(tmp_path, settings, disk=disk)
        server = RemotingServer(
            broker.network,
            Supervisor(fail),
            {
                RequestCode.REGISTER_BROKER: name_server.register,
                RequestCode.UNREGISTER_BROKER: name_server.unregister,
            },
        )
        await server.listen("127.0.0.1", NAME_SERVER_PORT)
        async with broker:
            disk.fail("write", errno.ENOSPC, path_contains="/config/")
            view = broker.broker.view()
            assert view is not None
            for _ in range(3):  # the first creates it, the others find it
                answer = await broker.send("new")
                assert answer.code == ResponseCode.SYSTEM_ERROR
                assert "No space left" in (answer.remark or "")
            assert view.store.log.max_offset == 0
            assert "No space left" in (tables_of(broker).save_failure or "")
            await wait_s(settings.register_period_ms / 1000 + 1)
            assert not any(b'"new"' in body for body in name_server.bodies)
            disk.heal()
            for _ in range(3):
                assert (await broker.send("new", b"kept")).code == ResponseCode.SUCCESS
            assert await bodies(broker, "new") == [b"kept"] * 3
            assert b'"new"' in name_server.bodies[-1]
            assert tables_of(broker).save_failure is None
        await server.stop()

    run(main())


def test_a_change_that_cannot_be_saved_leaves_the_topic_as_usable_as_it_was(tmp_path: Path) -> None:
    async def main() -> None:
        disk = FaultyDisk()
        async with OneBroker(tmp_path, disk=disk) as broker:
            await create_topic(broker, "orders", 2)
            assert (await broker.send("orders", queue_id=1)).code == ResponseCode.SUCCESS
            disk.fail("write", errno.EIO, path_contains="/config/")
            assert (await create_topic(broker, "orders", 4)).code == ResponseCode.SYSTEM_ERROR
            for queue_id, code in (
                (0, ResponseCode.SUCCESS),
                (1, ResponseCode.SUCCESS),
                (2, ResponseCode.SYSTEM_ERROR),
            ):
                assert (await broker.send("orders", queue_id=queue_id)).code == code, queue_id
            disk.heal()
            assert (await broker.send("orders", queue_id=3)).code == ResponseCode.SUCCESS

    run(main())


def test_a_failed_save_is_tried_again_without_a_request(tmp_path: Path) -> None:
    async def main() -> None:
        disk = FaultyDisk()
        async with OneBroker(tmp_path, disk=disk) as broker:
            disk.fail("write", errno.ENOSPC, path_contains="/config/")
            assert (await broker.send("new")).code == ResponseCode.SYSTEM_ERROR
            disk.heal()
            tables = tables_of(broker)
            await wait_s(6)
            assert (tables.save_failure, tables.topics.is_dirty) == (None, False)

    run(main())


def test_sends_to_a_new_topic_wait_for_its_save_and_keep_their_order(tmp_path: Path) -> None:
    async def main() -> None:
        saves = HeldRunner()
        broker = OneBroker(tmp_path, saves=saves)
        starting = spawn(broker.broker.start())
        await let_all_be_saved(saves, starting)
        sends = [spawn(broker.send("new", b"%d" % number)) for number in range(5)]
        await turns(20)
        assert not any(task.done() for task in sends)
        await saves.finish()
        assert [(await task).code for task in sends] == [ResponseCode.SUCCESS] * 5
        assert await bodies(broker, "new") == [b"0", b"1", b"2", b"3", b"4"]
        await let_all_be_saved(saves, spawn(broker.__aexit__()))

    run(main())


def test_a_send_waits_a_bounded_time_for_its_topic(tmp_path: Path) -> None:
    async def main() -> None:
        saves = HeldRunner()
        broker = OneBroker(tmp_path, saves=saves)
        await let_all_be_saved(saves, spawn(broker.broker.start()))
        loop = asyncio.get_running_loop()
        began_s = loop.time()
        answer = await broker.send("new")
        assert answer.code == ResponseCode.SYSTEM_ERROR
        assert "not saved within 5 s" in (answer.remark or "")
        assert loop.time() - began_s == pytest.approx(WAIT_S_MAX)
        await let_all_be_saved(saves, spawn(broker.__aexit__()))

    run(main())


def test_a_topic_deleted_while_it_was_created_takes_no_message_and_stays_deleted(
    tmp_path: Path,
) -> None:
    async def main() -> None:
        saves = HeldRunner()
        broker = OneBroker(tmp_path, saves=saves)
        await let_all_be_saved(saves, spawn(broker.broker.start()))
        sending = spawn(broker.send("new"))
        await turns(20)
        deleting = spawn(
            broker.client.call(
                "127.0.0.1:10911", RequestCode.DELETE_TOPIC_IN_BROKER, {"topic": "new"}, timeout_s=9
            )
        )
        await turns(20)
        await let_all_be_saved(saves, deleting)
        assert (await deleting).code == ResponseCode.SUCCESS
        answer = await sending
        assert answer.code == ResponseCode.SYSTEM_ERROR
        assert "deleted or changed" in (answer.remark or "")
        broker.client.close()
        await let_all_be_saved(saves, spawn(broker.broker.crash()))
        async with OneBroker(tmp_path) as again:
            assert not await has_topic(again, "new")

    run(main())


class CountingDisk(FaultyDisk):
    """Counts what is written to each table."""

    def __init__(self) -> None:
        super().__init__()
        self.bytes_of: dict[str, list[int]] = {}

    def write(self, path: Path, data: bytes) -> None:
        self.bytes_of.setdefault(path.name.removesuffix(".tmp"), []).append(len(data))
        super().write(path, data)


class WatchedRunner(InLine):
    """Knows whether its work is running, as a thread of its own would."""

    def __init__(self, disk: CountingDisk) -> None:
        self._disk = disk
        self.bytes_inside = 0

    async def run(self, work: Callable[[], None]) -> None:
        before = sum(sum(sizes) for sizes in self._disk.bytes_of.values())
        work()
        self.bytes_inside += sum(sum(sizes) for sizes in self._disk.bytes_of.values()) - before


def test_a_heartbeat_with_many_new_groups_costs_one_save_per_table_off_the_loop(
    tmp_path: Path,
) -> None:
    async def main() -> None:
        disk = CountingDisk()
        saves = WatchedRunner(disk)
        async with OneBroker(tmp_path, disk=disk, saves=saves) as broker:
            disk.bytes_of.clear()
            saves.bytes_inside = 0
            groups = [f"group{number}" for number in range(2_000)]
            answer = await heartbeat(broker, *groups)
            assert answer.code == ResponseCode.SUCCESS
            sizes = {name: disk.bytes_of.pop(name) for name in list(disk.bytes_of)}
            assert {name: len(written) for name, written in sizes.items()} == {
                "topics.json": 1,
                "subscriptionGroup.json": 1,
            }
            assert saves.bytes_inside == sum(sum(written) for written in sizes.values())
            assert (await heartbeat(broker, *groups)).code == ResponseCode.SUCCESS
            assert disk.bytes_of == {}, "the next heartbeat finds everything there"

    run(main())


def test_a_topic_that_the_table_has_lost_is_restored_with_its_messages(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async def main() -> None:
        async with OneBroker(tmp_path) as broker:
            await create_topic(broker, TOPIC, 8)
            for queue_id in (0, 2):
                assert (await broker.send(TOPIC, queue_id=queue_id)).code == ResponseCode.SUCCESS
            await create_topic(broker, "empty")
        for name in ("topics.json", "topics.json.bak"):
            (tmp_path / "store" / "config" / name).unlink()
        for attempt in range(2):
            caplog.clear()
            async with OneBroker(tmp_path) as broker:
                assert await bodies(broker, TOPIC) == [b"body"]
                config = tables_of(broker).topics.get(TOPIC)
                assert config is not None
                assert (config.read_queue_nums, config.write_queue_nums, config.perm) == (3, 3, 6)
                assert not await has_topic(broker, "empty")
            warned = [one for one in caplog.messages if "restored with 3 queues" in one]
            assert len(warned) == (attempt == 0), "it is on disk again"

    run(main())


@pytest.mark.parametrize("has_manifest", [True, False])
def test_a_topic_that_an_apache_broker_has_deleted_comes_back_and_is_deleted_here_for_good(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, *, has_manifest: bool
) -> None:
    """An Apache broker removes the topic from its table and its queues, and keeps no note of it."""
    root = tmp_path / "store"

    async def main() -> None:
        async with OneBroker(tmp_path) as broker:
            await prepare(broker)
            assert (await broker.send("other")).code == ResponseCode.SUCCESS
        for name in ("topics.json", "topics.json.bak"):
            file = root / "config" / name
            table = json.loads(file.read_bytes())
            table["topicConfigTable"].pop(TOPIC, None)
            file.write_text(json.dumps(table))
        shutil.rmtree(root / "consumequeue" / TOPIC)
        if not has_manifest:
            (root / "derived.json").unlink()
        async with OneBroker(tmp_path) as broker:
            assert await bodies(broker, TOPIC) == [b"0", b"1"]
            assert any(f"topic {TOPIC}: has messages" in one for one in caplog.messages)
            answer = await PROMISES["delete a topic"].ask(broker)
            assert answer.code == ResponseCode.SUCCESS
        async with OneBroker(tmp_path) as broker:
            assert await PROMISES["delete a topic"].is_kept(broker)
            assert await bodies(broker, "other") == [b"body"]

    run(main())


def test_a_number_of_queues_that_an_operator_has_reduced_stays_reduced(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async def main() -> None:
        async with OneBroker(tmp_path) as broker:
            await create_topic(broker, TOPIC, 4)
            assert (await broker.send(TOPIC, queue_id=3)).code == ResponseCode.SUCCESS
            await create_topic(broker, TOPIC, 2)
        async with OneBroker(tmp_path) as broker:
            config = tables_of(broker).topics.get(TOPIC)
            assert config is not None
            assert config.read_queue_nums == 2
        assert any("queue 3 has messages" in one for one in caplog.messages)

    run(main())


def spawn(coroutine: Coroutine[None, None, T]) -> asyncio.Task[T]:
    return asyncio.get_running_loop().create_task(coroutine)


async def let_all_be_saved(saves: HeldRunner, until: asyncio.Task[T]) -> None:
    """Let the disk finish its work, one piece after the other, until something has happened."""
    while not until.done():
        await turns(20)
        if saves.count:
            await saves.finish()


async def wait_s(seconds: float) -> None:
    future = asyncio.get_running_loop().create_future()
    asyncio.get_running_loop().call_later(seconds, future.set_result, None)
    await future
