"""Too much is refused with the reason, and taken again when there is room."""

import asyncio
from pathlib import Path

import pytest
from unit.broker.one_broker import ADDRESS, OneBroker, SlowSyncs, pass_time, small_files

from downrange.broker import long_polling
from downrange.broker.hooks import BrokerHooks, Sending, SendOutcome
from downrange.broker.overload import Gate, WaitingSends, WaitLimit
from downrange.broker.settings import BrokerSettings
from downrange.protocol.bodies.heartbeat import Heartbeat, ProducerGroup
from downrange.protocol.bodies.json_body import decode_body, encode_body
from downrange.protocol.bodies.topics import KvTable
from downrange.protocol.command import Command
from downrange.protocol.headers.fields import encode_header
from downrange.protocol.headers.send import SendRequestV2
from downrange.protocol.request_codes import RequestCode
from downrange.protocol.response_codes import ResponseCode
from downrange.remoting.client import RemotingClient
from downrange.remoting.connection import Answer, Connection, Handler
from downrange.runtime.loop_watch import LoopWatch
from downrange.store.settings import FlushMode
from downrange.testing.virtual_time import VirtualTimeLoop, run

BUSY = ResponseCode.SYSTEM_BUSY


def settings(**changes: object) -> BrokerSettings:
    return BrokerSettings(address="127.0.0.1", broker_name="b1", **changes)  # type: ignore[arg-type]


def a_gate() -> Gate:
    return Gate(WaitLimit(LoopWatch(lambda: 0.0), "waitTimeMillsInSendQueue", lambda: 0))


def test_a_gate_is_closed_as_long_as_one_cause_is_left() -> None:
    gate = a_gate()
    gate.close("a", "first")
    gate.close("b", "second")
    assert gate.refusal().remark == "first; second"
    gate.open("a")
    assert gate.is_closed
    gate.open("b")
    assert not gate.is_closed


def test_sends_that_wait_for_the_disk_close_the_gate_at_the_capacity() -> None:
    gate = a_gate()
    line = WaitingSends(gate, 3)
    line.note(2)
    assert not gate.is_closed
    line.note(3)
    assert gate.refusal().remark == (
        "[OVERLOAD]system busy, start flow control for a while: 3 sends wait for the disk, "
        "sendThreadPoolQueueCapacity is 3"
    )
    line.note(0)
    assert not gate.is_closed


class Backlog:
    """A watch whose laps a test makes as long as it likes."""

    def __init__(self) -> None:
        self._now_s = 0.0
        self.watch = LoopWatch(lambda: self._now_s)
        self.watch.lap_s_counted = 0.1
        self.watch.begin()

    def step(self, seconds: float) -> None:
        self._now_s += seconds
        self.watch.lap()


def test_a_request_that_waited_behind_slow_ones_is_refused_and_the_next_turn_is_not() -> None:
    backlog = Backlog()
    limit = WaitLimit(backlog.watch, "waitTimeMillsInSendQueue", lambda: 7)
    limit.wait_s_max = 0.2
    for _ in range(4):
        backlog.step(0.05)
    seen = [limit.is_exceeded]  # 200 ms are allowed
    backlog.step(0.05)
    seen.append(limit.is_exceeded)
    assert seen == [False, True]
    assert limit.refusal().code == BUSY
    assert limit.refusal().remark == (
        "[TIMEOUT_CLEAN_QUEUE]broker busy, start flow control for a while, period in queue: 250ms, "
        "size of queue: 7; waitTimeMillsInSendQueue is 200"
    )
    backlog.watch.begin()
    assert not limit.is_exceeded


def test_pauses_are_not_waits_however_long_they_are() -> None:
    backlog = Backlog()
    limit = WaitLimit(backlog.watch, "waitTimeMillsInSendQueue", lambda: 0)
    limit.wait_s_max = 0.2
    backlog.step(0.35)
    backlog.step(60.0)
    assert not limit.is_exceeded


def test_when_too_many_sends_wait_for_the_disk_the_next_is_refused(tmp_path: Path) -> None:
    async def main() -> None:
        files = small_files(tmp_path, flush_mode=FlushMode.SYNC)
        around = settings(waiting_sends_max=5)
        syncs = SlowSyncs(0.0)
        async with OneBroker(tmp_path, around, files, syncs=syncs) as broker:
            await broker.send("orders")
            syncs.seconds = 1.0
            answers = await asyncio.gather(*(broker.send("orders") for _ in range(8)))
            assert [answer.code for answer in answers] == [0] * 5 + [BUSY] * 3
            assert "5 sends wait for the disk" in (answers[-1].remark or "")
            assert (await broker.send("orders")).code == 0
            assert len((await broker.pull("orders")).body or b"") > 0

    run(main())


class SlowHook:
    """Makes each send take as long as a test likes."""

    def __init__(self) -> None:
        self.stall_s = 0.0

    def before_send(self, sending: Sending, /) -> None:  # noqa: ARG002
        loop = asyncio.get_running_loop()
        assert isinstance(loop, VirtualTimeLoop)
        loop.stall(self.stall_s)

    def after_send(self, sending: Sending, outcome: SendOutcome, /) -> None:
        """Nothing."""


def test_sends_that_were_read_and_have_waited_too_long_are_refused_and_later_ones_are_not(
    tmp_path: Path,
) -> None:
    async def main() -> None:
        slow = SlowHook()
        async with OneBroker(tmp_path, hooks=BrokerHooks(sends=(slow,))) as broker:
            await broker.send("orders")
            slow.stall_s = 0.09
            answers = await asyncio.gather(*(broker.send("orders") for _ in range(4)))
            assert [answer.code for answer in answers] == [0, 0, 0, BUSY], "one write, one read"
            assert (answers[-1].remark or "").startswith("[TIMEOUT_CLEAN_QUEUE]broker busy")
            slow.stall_s = 0.0
            assert (await broker.send("orders")).code == 0

    run(main())


def test_pauses_refuse_nothing(tmp_path: Path) -> None:
    async def main() -> None:
        slow = SlowHook()
        async with OneBroker(tmp_path, hooks=BrokerHooks(sends=(slow,))) as broker:
            await broker.send("orders")
            loop = asyncio.get_running_loop()
            assert isinstance(loop, VirtualTimeLoop)
            for _ in range(3):
                sends = [asyncio.ensure_future(broker.send("orders")) for _ in range(6)]
                await pass_time(0)
                loop.stall(0.35)  # between reading and serving, or before reading
                assert [answer.code for answer in await asyncio.gather(*sends)] == [0] * 6
            slow.stall_s = 0.35  # while one of them is served
            first = asyncio.ensure_future(broker.send("orders"))
            await pass_time(0)
            slow.stall_s = 0.0
            rest = [asyncio.ensure_future(broker.send("orders")) for _ in range(5)]
            assert [answer.code for answer in await asyncio.gather(first, *rest)] == [0] * 6

    run(main())


def test_fast_failure_can_be_switched_off(tmp_path: Path) -> None:
    async def main() -> None:
        async with OneBroker(tmp_path, settings(fails_fast=False)) as broker:
            loop = asyncio.get_running_loop()
            assert isinstance(loop, VirtualTimeLoop)
            for _ in range(3):
                loop.stall(60)
                await pass_time(0)
            assert (await broker.send("orders")).code == 0
            assert (await broker.pull("orders")).code == 0

    run(main())


def _wait(broker: OneBroker, connection: Connection) -> asyncio.Future[Command]:
    fields = encode_header(broker.pull_header("orders", 1, sys_flag=6))
    return asyncio.ensure_future(connection.call(RequestCode.PULL_MESSAGE, fields, timeout_s=60))


def test_too_many_waiting_pulls_are_refused(tmp_path: Path) -> None:
    async def main() -> None:
        async with OneBroker(tmp_path, settings(waiting_pulls_max=3)) as broker:
            await broker.send("orders")
            connection = await broker.connect()
            waiting = [_wait(broker, connection) for _ in range(4)]
            await pass_time(0.1)
            refused = waiting[-1].result()
            assert refused.code == BUSY
            assert (refused.remark or "").endswith(
                "3 pulls wait for messages, pullThreadPoolQueueCapacity is 3"
            )
            await broker.send("orders")
            assert [answer.code for answer in await asyncio.gather(*waiting[:3])] == [0, 0, 0]

    run(main())


def test_one_queue_cannot_hold_all_waiting_pulls(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(long_polling, "PARKED_PER_QUEUE_MAX", 2)

    async def main() -> None:
        async with OneBroker(tmp_path) as broker:
            await broker.send("orders")
            connection = await broker.connect()
            waiting = [_wait(broker, connection) for _ in range(3)]
            await pass_time(0.1)
            assert [future.done() for future in waiting] == [False, False, True]
            refused = waiting[-1].result()
            assert refused.code == BUSY
            assert "2 pulls wait for messages of queue 0 of orders" in (refused.remark or "")

    run(main())


def test_too_many_replies_to_a_client_that_does_not_answer_are_refused(tmp_path: Path) -> None:
    async def never(_request: Command, _: Connection) -> Answer:
        await asyncio.get_running_loop().create_future()
        raise AssertionError

    async def main() -> None:
        async with OneBroker(tmp_path, settings(waiting_replies_max=2)) as broker:
            handlers: dict[int, Handler] = {RequestCode.PUSH_REPLY_MESSAGE_TO_CLIENT: never}
            asker = await RemotingClient(broker.network, handlers).connect(ADDRESS)
            beat = Heartbeat(client_id="c", producer_data_set=(ProducerGroup(group_name="p"),))
            await asker.call(RequestCode.HEART_BEAT, body=encode_body(beat), timeout_s=3)
            header = SendRequestV2(
                producer_group="producers",
                topic="DefaultCluster_REPLY_TOPIC",
                default_topic="TBW102",
                default_topic_queue_nums=4,
                queue_id=0,
                sys_flag=0,
                born_timestamp=1,
                flag=0,
                properties="REPLY_TO_CLIENT\x01c\x02",
            )
            calls = [
                asyncio.ensure_future(broker.call(RequestCode.SEND_REPLY_MESSAGE_V2, header, b"r"))
                for _ in range(3)
            ]
            answers = await asyncio.gather(*calls)
            assert [answer.code for answer in answers] == [1, 1, BUSY]
            assert "2 replies wait for an answer, replyThreadPoolQueueCapacity is 2" in (
                answers[-1].remark or ""
            )

    run(main())


def test_the_runtime_table_shows_who_waits(tmp_path: Path) -> None:
    async def main() -> None:
        files = small_files(tmp_path, flush_mode=FlushMode.SYNC)
        syncs = SlowSyncs(0.0)
        async with OneBroker(tmp_path, store_files=files, syncs=syncs) as broker:
            await broker.send("orders")
            syncs.seconds = 1.0
            sends = [asyncio.ensure_future(broker.send("orders")) for _ in range(4)]
            await pass_time(0.5)
            answer = await broker.call(RequestCode.GET_BROKER_RUNTIME_INFO)
            table = decode_body(KvTable, answer.body).table
            assert table["sendThreadPoolQueueSize"] == "4"
            assert table["sendThreadPoolQueueCapacity"] == "10000"
            assert table["sendThreadPoolQueueHeadWaitTimeMills"] == "0"
            assert table["pullThreadPoolQueueCapacity"] == "100000"
            await asyncio.gather(*sends)

    run(main())
