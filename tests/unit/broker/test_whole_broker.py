"""What a broker does over time: delays, transactions, groups, restarts."""

import asyncio
from pathlib import Path

import msgspec
import pytest
from unit.broker.one_broker import OneBroker, SlowSyncs, pass_time, records, small_files

from downrange.broker.settings import BrokerSettings
from downrange.protocol.bodies.heartbeat import (
    ConsumerGroup,
    Heartbeat,
    ProducerGroup,
    Subscription,
)
from downrange.protocol.bodies.json_body import encode_body
from downrange.protocol.command import Command, request
from downrange.protocol.headers.broker_to_client import CheckTransactionStateRequest
from downrange.protocol.headers.fields import decode_header, encode_header
from downrange.protocol.headers.send import SendBackRequest
from downrange.protocol.headers.transaction import EndTransactionRequest
from downrange.protocol.properties import decode_properties
from downrange.protocol.request_codes import RequestCode
from downrange.protocol.response_codes import ResponseCode
from downrange.protocol.versions import version_number
from downrange.remoting.client import RemotingClient
from downrange.remoting.connection import Connection
from downrange.store.settings import FlushMode
from downrange.testing.virtual_time import run

PREPARED, COMMIT, ROLLBACK = 4, 8, 12
HALF = "TRAN_MSG\x01true\x02PGROUP\x01payers\x02UNIQ_KEY\x01AA\x02"


def test_a_delayed_message_comes_on_time(tmp_path: Path) -> None:
    async def main() -> None:
        async with OneBroker(tmp_path) as broker:
            await broker.send("orders", b"now")
            await broker.send("orders", b"later", properties="DELAY\x013\x02")
            loop = asyncio.get_running_loop()
            started_s = loop.time()
            answer = await broker.pull("orders", 1, sys_flag=6, suspend_timeout_millis=15_000)
            (record,) = records(answer)
            assert record.body == b"later"
            assert 10 <= loop.time() - started_s <= 10.5
            assert decode_properties(record.properties)["REAL_TOPIC"] == "orders"

    run(main())


def test_a_delayed_message_survives_a_restart(tmp_path: Path) -> None:
    async def first() -> None:
        async with OneBroker(tmp_path) as broker:
            await broker.send("orders", b"later", properties="DELAY\x012\x02")

    async def second() -> None:
        async with OneBroker(tmp_path) as broker:
            await pass_time(6)
            assert [record.body for record in records(await broker.pull("orders"))] == [b"later"]

    run(first())
    run(second())


async def _half(broker: OneBroker) -> Command:
    return await broker.send("orders", b"half", properties=HALF, sys_flag=PREPARED)


def _end(sent: Command, decision: int) -> EndTransactionRequest:
    fields = sent.ext_fields or {}
    return EndTransactionRequest(
        producer_group="payers",
        tran_state_table_offset=int(fields["queueOffset"]),
        commit_log_offset=int(fields["msgId"][16:], 16),
        commit_or_rollback=decision,
        msg_id="AA",
    )


def test_a_half_message_is_visible_only_after_its_commit(tmp_path: Path) -> None:
    async def main() -> None:
        async with OneBroker(tmp_path) as broker:
            await broker.send("orders", b"plain")
            first, second = await _half(broker), await _half(broker)
            assert len(records(await broker.pull("orders"))) == 1
            await broker.call(RequestCode.END_TRANSACTION, _end(first, COMMIT))
            await broker.call(RequestCode.END_TRANSACTION, _end(second, ROLLBACK))
            await pass_time(5)
            found = records(await broker.pull("orders"))
            assert [record.body for record in found] == [b"plain", b"half"]

    run(main())


def test_a_producer_is_asked_about_a_half_message_without_end(tmp_path: Path) -> None:
    async def main() -> None:
        asked: list[Command] = []

        def on_check(request: Command, _: Connection) -> None:
            asked.append(request)

        async with OneBroker(tmp_path) as broker:
            producer = await RemotingClient(
                broker.network, {RequestCode.CHECK_TRANSACTION_STATE: on_check}
            ).connect("127.0.0.1:10911")
            beat = Heartbeat(
                client_id="p@1", producer_data_set=(ProducerGroup(group_name="payers"),)
            )
            await producer.call(RequestCode.HEART_BEAT, body=encode_body(beat), timeout_s=3)
            await _half(broker)
            await pass_time(65)
            assert asked
            header = decode_header(CheckTransactionStateRequest, asked[0].ext_fields)
            assert header.msg_id == "AA"

    run(main())


def test_a_message_sent_back_comes_again_and_ends_in_the_dead_letter_queue(tmp_path: Path) -> None:
    async def main() -> None:
        async with OneBroker(tmp_path) as broker:
            await broker.send("orders", b"bad")
            (record,) = records(await broker.pull("orders"))
            back = SendBackRequest(
                offset=record.physical_offset,
                group="consumers",
                delay_level=1,
                origin_topic="orders",
                max_reconsume_times=1,
            )
            assert (await broker.call(RequestCode.CONSUMER_SEND_MSG_BACK, back)).code == 0
            await pass_time(2)
            (again,) = records(await broker.pull("%RETRY%consumers"))
            assert (again.body, again.reconsume_times) == (b"bad", 1)
            back = SendBackRequest(
                offset=again.physical_offset,
                group="consumers",
                delay_level=1,
                origin_topic="orders",
                max_reconsume_times=1,
            )
            assert (await broker.call(RequestCode.CONSUMER_SEND_MSG_BACK, back)).code == 0
            (dead,) = records(await broker.pull("%DLQ%consumers"))
            assert dead.body == b"bad"

    run(main())


def test_consumers_hear_at_once_who_joined_and_who_left(tmp_path: Path) -> None:
    async def main() -> None:
        heard: list[str] = []

        async def join(client_id: str) -> Connection:
            def on_notice(_request: Command, _: Connection) -> None:
                heard.append(client_id)

            connection = await RemotingClient(
                broker.network, {RequestCode.NOTIFY_CONSUMER_IDS_CHANGED: on_notice}
            ).connect("127.0.0.1:10911")
            group = ConsumerGroup(
                group_name="g",
                consume_type="CONSUME_PASSIVELY",
                message_model="CLUSTERING",
                consume_from_where="CONSUME_FROM_LAST_OFFSET",
                subscription_data_set=(Subscription(topic="orders", sub_string="*"),),
            )
            beat = Heartbeat(client_id=client_id, consumer_data_set=(group,))
            answer = await connection.call(
                RequestCode.HEART_BEAT, body=encode_body(beat), timeout_s=3
            )
            assert answer.code == 0
            return connection

        async with OneBroker(tmp_path) as broker:
            first = await join("a")
            second = await join("b")
            await pass_time(0.1)
            assert "a" in heard
            heard.clear()
            second.close()
            await pass_time(0.1)
            assert heard == ["a"]
            assert not first.is_closed

    run(main())


def test_a_stopping_broker_answers_the_pulls_that_wait(tmp_path: Path) -> None:
    async def main() -> None:
        broker = OneBroker(tmp_path)
        await broker.broker.start()
        await broker.send("orders")
        connection = await broker.connect()
        fields = encode_header(broker.pull_header("orders", 1, sys_flag=6))
        waiting = asyncio.ensure_future(
            connection.call(RequestCode.PULL_MESSAGE, fields, timeout_s=60)
        )
        await pass_time(1)
        await broker.broker.stop()
        assert (await waiting).code == 19

    run(main())


def test_a_stopping_broker_answers_the_sends_that_wait_for_the_disk(tmp_path: Path) -> None:
    async def main() -> None:
        files = small_files(tmp_path, flush_mode=FlushMode.SYNC)
        syncs = SlowSyncs(0.0)
        broker = OneBroker(tmp_path, store_files=files, syncs=syncs)
        await broker.broker.start()
        await broker.send("orders")
        syncs.seconds = 2.0
        # A sync is under way for the first one when the second one comes.
        first = asyncio.ensure_future(broker.send("orders", b"first"))
        await pass_time(1)
        second = asyncio.ensure_future(broker.send("orders", b"second"))
        await pass_time(0.1)
        await broker.broker.stop()
        assert [(await sent).code for sent in (first, second)] == [0, 0]

    async def restarted() -> None:
        async with OneBroker(tmp_path) as broker:
            bodies = [record.body for record in records(await broker.pull("orders"))]
            assert bodies == [b"body", b"first", b"second"]

    run(main())
    run(restarted())


def test_a_broker_stops_while_the_disk_is_busy(tmp_path: Path) -> None:
    async def main() -> None:
        syncs = SlowSyncs(3.0)
        broker = OneBroker(tmp_path, syncs=syncs)
        await broker.broker.start()
        await broker.send("orders", b"x" * 100_000)
        await pass_time(1)  # the log is being synced
        loop = asyncio.get_running_loop()
        started_s = loop.time()
        await broker.broker.stop()
        assert loop.time() - started_s < 10

    run(main())


def test_a_graceful_stop_sends_new_clients_away_and_serves_old_ones(tmp_path: Path) -> None:
    async def main() -> None:
        settings = BrokerSettings(
            address="127.0.0.1", broker_name="b1", stops_gracefully=True, stop_wait_s=20
        )
        broker = OneBroker(tmp_path, settings)
        await broker.broker.start()
        await broker.send("orders")
        young, old = await broker.connect(), await broker.connect()
        heard: list[Command] = []
        pull = encode_header(broker.pull_header("orders", 1, sys_flag=6))
        waiting = asyncio.ensure_future(young.call(RequestCode.PULL_MESSAGE, pull, timeout_s=60))
        await pass_time(1)
        loop = asyncio.get_running_loop()
        started_s = loop.time()
        stopping = asyncio.ensure_future(broker.broker.stop())
        assert (await waiting).code == ResponseCode.PULL_NOT_FOUND
        find = encode_header(broker.pull_header("orders"))
        answer = await young.call(RequestCode.PULL_MESSAGE, find, timeout_s=3)
        assert (answer.code, answer.remark) == (ResponseCode.GO_AWAY, "please go away")
        unknown = await young.call(77_777, timeout_s=3)
        assert unknown.code == ResponseCode.REQUEST_CODE_NOT_SUPPORTED
        # A release that does not know the word is served until the end.
        old._calls.resolve = heard.append  # type: ignore[method-assign, assignment]
        plain = request(RequestCode.PULL_MESSAGE, opaque=1, ext_fields=find)
        old.send(msgspec.structs.replace(plain, version=version_number("5.3.1")))
        await pass_time(1)
        assert [command.code for command in heard] == [ResponseCode.SUCCESS]
        await stopping
        assert loop.time() - started_s == pytest.approx(20, abs=1)
        assert young.is_closed
        assert old.is_closed

    run(main())


def test_a_graceful_stop_ends_when_all_clients_have_gone(tmp_path: Path) -> None:
    async def main() -> None:
        settings = BrokerSettings(address="127.0.0.1", broker_name="b1", stops_gracefully=True)
        broker = OneBroker(tmp_path, settings)
        await broker.broker.start()
        await broker.send("orders")
        loop = asyncio.get_running_loop()
        loop.call_later(3, broker.client.close)
        started_s = loop.time()
        await broker.broker.stop()
        assert loop.time() - started_s < 4

    run(main())
