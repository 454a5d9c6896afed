"""Under SYNC_FLUSH every request that stores a message is answered when the message is durable."""

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest
from unit.broker.one_broker import OneBroker, SlowSyncs, small_files
from unit.broker.promises import GROUP, TOPIC, ask, prepare

from downrange.protocol.command import Command
from downrange.protocol.headers.fields import encode_header
from downrange.protocol.headers.send import SendRequestV2
from downrange.protocol.request_codes import RequestCode as Code
from downrange.protocol.response_codes import ResponseCode
from downrange.store.settings import FlushMode
from downrange.testing.virtual_time import run

DISK_S = 1.0
COMMIT = 8

Ask = Callable[[OneBroker], Awaitable[Command]]


async def send(broker: OneBroker) -> Command:
    return await broker.send(TOPIC)


async def send_half(broker: OneBroker) -> Command:
    properties = "UNIQ_KEY\x01id\x02TRAN_MSG\x01true\x02PGROUP\x01producers\x02"
    return await broker.send(TOPIC, properties=properties)


async def send_delayed(broker: OneBroker) -> Command:
    return await broker.send(TOPIC, properties="UNIQ_KEY\x01id\x02DELAY\x011\x02")


async def send_back(broker: OneBroker) -> Command:
    return await ask(
        broker, Code.CONSUMER_SEND_MSG_BACK, offset=0, group=GROUP, delayLevel=1, unitMode=False
    )


async def send_dead_letter(broker: OneBroker) -> Command:
    return await ask(
        broker, Code.CONSUMER_SEND_MSG_BACK, offset=0, group=GROUP, delayLevel=-1, unitMode=False
    )


async def commit(broker: OneBroker) -> Command:
    view = broker.broker.view()
    assert view is not None
    queue = view.store.queues.get("RMQ_SYS_TRANS_HALF_TOPIC", 0)
    assert queue is not None
    return await ask(
        broker,
        Code.END_TRANSACTION,
        producerGroup="producers",
        tranStateTableOffset=0,
        commitLogOffset=queue.entry(0)[0],
        commitOrRollback=COMMIT,
        fromTransactionCheck=False,
        msgId="id",
    )


async def reply(broker: OneBroker) -> Command:
    header = SendRequestV2(
        producer_group="producers",
        topic="DefaultCluster_REPLY_TOPIC",
        default_topic="TBW102",
        default_topic_queue_nums=4,
        queue_id=0,
        sys_flag=0,
        born_timestamp=1,
        flag=0,
        properties="REPLY_TO_CLIENT\x01nobody\x02",
    )
    return await ask(broker, Code.SEND_REPLY_MESSAGE_V2, b"body", **encode_header(header))


@pytest.mark.parametrize(
    ("request_of", "code"),
    [
        (send, ResponseCode.SUCCESS),
        (send_half, ResponseCode.SUCCESS),
        (send_delayed, ResponseCode.SUCCESS),
        (send_back, ResponseCode.SUCCESS),
        (send_dead_letter, ResponseCode.SUCCESS),
        (commit, ResponseCode.SUCCESS),
        (reply, ResponseCode.SYSTEM_ERROR),  # stored, but the client it is for is not here
    ],
)
def test_the_answer_waits_for_the_disk(tmp_path: Path, request_of: Ask, code: ResponseCode) -> None:
    async def main() -> None:
        syncs = SlowSyncs(0.0)
        files = small_files(tmp_path, flush_mode=FlushMode.SYNC)
        loop = asyncio.get_running_loop()
        async with OneBroker(tmp_path, store_files=files, syncs=syncs) as broker:
            await prepare(broker)
            for prepared in (send_back, send_dead_letter, send_half):  # their topics exist
                assert (await prepared(broker)).code == ResponseCode.SUCCESS
            syncs.seconds = DISK_S
            began_s = loop.time()
            answer = await request_of(broker)
            took_s = loop.time() - began_s
            syncs.seconds = 0.0
        assert answer.code == code, answer
        assert took_s == pytest.approx(DISK_S)

    run(main())


@pytest.mark.parametrize("request_of", [send_back, commit])
def test_a_copy_that_is_not_known_to_be_durable_is_no_success(
    tmp_path: Path, request_of: Ask
) -> None:
    async def main() -> None:
        syncs = SlowSyncs(0.0)
        files = small_files(tmp_path, flush_mode=FlushMode.SYNC)
        async with OneBroker(tmp_path, store_files=files, syncs=syncs) as broker:
            await prepare(broker)
            assert (await send_half(broker)).code == ResponseCode.SUCCESS
            syncs.seconds = 20.0
            answer = await request_of(broker)
            syncs.seconds = 0.0
        assert answer.code == ResponseCode.SYSTEM_ERROR
        assert "FLUSH_DISK_TIMEOUT" in (answer.remark or "")

    run(main())
