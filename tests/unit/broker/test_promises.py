"""What a broker has answered is on disk: it survives a kill, and a failing disk is no success."""

import asyncio
import errno
import gc
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import TypeVar

import pytest
from unit.broker.one_broker import OneBroker, fail, small_files
from unit.broker.promises import (
    GROUP,
    PROMISES,
    TOPIC,
    Promise,
    bodies,
    commit,
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
from downrange.remoting.errors import RemotingError
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


def test_a_reset_moves_consumers_that_were_online_when_the_broker_was_killed(
    tmp_path: Path,
) -> None:
    async def main() -> None:
        killed = OneBroker(tmp_path)
        await killed.broker.start()
        await prepare(killed)
        assert (await PROMISES["reset offsets"].ask(killed)).code == ResponseCode.SUCCESS
        killed.client.close()
        await killed.broker.crash()
        async with OneBroker(tmp_path) as broker:
            late = await commit(broker, 2)  # the consumer does not know of the reset
            assert late.remark == "Offset has been previously reset"
            moved = await broker.pull(TOPIC, 2, consumer_group=GROUP)
            assert moved.code == ResponseCode.PULL_OFFSET_MOVED
            assert (moved.ext_fields or {})["nextBeginOffset"] == "0"
            assert (await commit(broker, 2)).remark is None
            tables_of(broker).savers.request_changed()
            await tables_of(broker).savers.settle()
            broker.client.close()
            await broker.broker.crash()
        async with OneBroker(tmp_path) as broker:
            assert (await commit(broker, 2)).remark is None, "it happens once"

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


def test_a_message_is_stored_although_its_sender_left_while_it_waited_for_its_topic(
    tmp_path: Path,
) -> None:
    async def main() -> None:
        saves = HeldRunner()
        broker = OneBroker(tmp_path, saves=saves)
        await let_all_be_saved(saves, spawn(broker.broker.start()))
        sending = spawn(broker.send("new", b"kept"))
        await turns(20)
        broker.client.close()
        with pytest.raises(RemotingError):
            await sending
        await saves.finish()
        assert await bodies(broker, "new") == [b"kept"]
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


@pytest.mark.parametrize(("group_count", "saves_max"), [(200, 1), (2_000, 21)])
def test_a_heartbeat_with_many_new_groups_costs_few_saves_per_table_off_the_loop(
    tmp_path: Path, group_count: int, saves_max: int
) -> None:
    async def main() -> None:
        disk = CountingDisk()
        saves = WatchedRunner(disk)
        async with OneBroker(tmp_path, disk=disk, saves=saves) as broker:
            disk.bytes_of.clear()
            saves.bytes_inside = 0
            groups = [f"group{number}" for number in range(group_count)]
            answer = await heartbeat(broker, *groups)
            assert answer.code == ResponseCode.SUCCESS
            sizes = {name: disk.bytes_of.pop(name) for name in list(disk.bytes_of)}
            assert set(sizes) == {"topics.json", "subscriptionGroup.json"}
            assert max(len(written) for written in sizes.values()) <= saves_max
            assert saves.bytes_inside == sum(sum(written) for written in sizes.values())
            assert (await heartbeat(broker, *groups)).code == ResponseCode.SUCCESS
            assert disk.bytes_of == {}, "the next heartbeat finds everything there"

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
