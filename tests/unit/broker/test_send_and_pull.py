"""Sending to a broker and pulling from it, as clients see it."""

import asyncio
from pathlib import Path

import pytest
from unit.broker.one_broker import ADDRESS, UNIQUE_KEY, OneBroker, pass_time, records, small_files

from downrange.broker.settings import BrokerSettings
from downrange.protocol.batch import encode_batch
from downrange.protocol.bodies.json_body import decode_body
from downrange.protocol.bodies.statistics import ConsumeStats
from downrange.protocol.headers.admin_group import GetConsumeStatsRequest
from downrange.protocol.headers.fields import encode_header
from downrange.protocol.headers.pull import BULK_FIELD
from downrange.protocol.headers.send import SendRequestV2
from downrange.protocol.properties import decode_properties
from downrange.protocol.request_codes import RequestCode
from downrange.protocol.response_codes import ResponseCode
from downrange.store.settings import FlushMode
from downrange.testing.virtual_time import run


def test_a_message_that_was_sent_can_be_pulled(tmp_path: Path) -> None:
    async def main() -> None:
        async with OneBroker(tmp_path) as broker:
            sent = await broker.send("orders", b"hello")
            assert sent.code == 0
            assert sent.ext_fields == {
                "MSG_REGION": "DefaultRegion",
                "TRACE_ON": "true",
                "msgId": "7F00000100002A9F0000000000000000",
                "queueId": "0",
                "queueOffset": "0",
                "transactionId": UNIQUE_KEY,
            }
            answer = await broker.pull("orders")
            assert (answer.code, answer.remark) == (0, "FOUND")
            (record,) = records(answer)
            assert record.body == b"hello"
            properties = decode_properties(record.properties)
            assert properties["CLUSTER"] == "DefaultCluster"
            assert properties["UNIQ_KEY"] == UNIQUE_KEY
            fields = answer.ext_fields or {}
            assert fields["nextBeginOffset"] == "1"
            assert fields["maxOffset"] == "1"
            assert fields["minOffset"] == "0"

    run(main())


def test_a_message_without_unique_id_gets_one(tmp_path: Path) -> None:
    async def main() -> None:
        async with OneBroker(tmp_path) as broker:
            sent = await broker.send("orders", properties="")
            (record,) = records(await broker.pull("orders"))
            unique_key = decode_properties(record.properties)["UNIQ_KEY"]
            assert len(unique_key) == 32
            assert (sent.ext_fields or {})["transactionId"] == unique_key

    run(main())


def test_a_batch_gets_one_id_for_each_message_and_consecutive_offsets(tmp_path: Path) -> None:
    async def main() -> None:
        async with OneBroker(tmp_path) as broker:
            header = SendRequestV2(
                producer_group="p",
                topic="orders",
                default_topic="TBW102",
                default_topic_queue_nums=4,
                queue_id=0,
                sys_flag=0,
                born_timestamp=1,
                flag=0,
                properties="WAIT\x01true\x02",
                batch=True,
            )
            body = encode_batch([(n, b"body %d" % n, b"KEYS\x01k%d\x02" % n) for n in range(3)])
            sent = await broker.call(RequestCode.SEND_BATCH_MESSAGE, header, body)
            assert sent.code == 0
            assert len((sent.ext_fields or {})["msgId"].split(",")) == 3
            found = records(await broker.pull("orders"))
            assert [(r.queue_offset, r.flag, r.body) for r in found] == [
                (0, 0, b"body 0"),
                (1, 1, b"body 1"),
                (2, 2, b"body 2"),
            ]
            assert found[1].properties == b"KEYS\x01k1\x02"

    run(main())


@pytest.mark.parametrize(
    ("topic", "code"),
    [
        ("bad topic!", ResponseCode.INVALID_PARAMETER),
        ("x" * 128, ResponseCode.INVALID_PARAMETER),
        ("SCHEDULE_TOPIC_XXXX", ResponseCode.NO_PERMISSION),
    ],
)
def test_topics_that_nobody_may_send_to_are_refused(tmp_path: Path, topic: str, code: int) -> None:
    async def main() -> None:
        async with OneBroker(tmp_path) as broker:
            answer = await broker.send(topic)
            assert answer.code == code
            assert answer.remark

    run(main())


def test_an_unknown_topic_is_refused_if_topics_are_not_created_by_sending(tmp_path: Path) -> None:
    async def main() -> None:
        settings = BrokerSettings(address="127.0.0.1", broker_name="b1", auto_create_topics=False)
        async with OneBroker(tmp_path, settings) as broker:
            answer = await broker.send("orders")
            assert answer.code == ResponseCode.TOPIC_NOT_EXIST
            assert "autoCreateTopicEnable" in (answer.remark or "")
            assert (await broker.pull("orders")).code == ResponseCode.TOPIC_NOT_EXIST

    run(main())


def test_queue_ids_are_checked_and_a_negative_one_means_any(tmp_path: Path) -> None:
    async def main() -> None:
        async with OneBroker(tmp_path) as broker:
            assert (await broker.send("orders", queue_id=-1)).code == 0
            refused = await broker.send("orders", queue_id=4)
            assert refused.code == ResponseCode.INVALID_PARAMETER
            assert "queueId[4]" in (refused.remark or "")
            assert (await broker.pull("orders", queue_id=9)).code == ResponseCode.INVALID_PARAMETER

    run(main())


def test_a_pull_waits_for_a_message_and_is_woken_by_it_at_once(tmp_path: Path) -> None:
    async def main() -> None:
        async with OneBroker(tmp_path) as broker:
            await broker.send("orders")
            connection = await broker.connect()
            loop = asyncio.get_running_loop()
            waiting = asyncio.ensure_future(
                connection.call(
                    RequestCode.PULL_MESSAGE,
                    {k: str(v) for k, v in _fields(broker, "orders", 1, sys_flag=6).items()},
                    timeout_s=60,
                )
            )
            await pass_time(5)
            assert not waiting.done()
            started_s = loop.time()
            await broker.send("orders", b"second")
            (record,) = records(await waiting)
            assert record.body == b"second"
            assert loop.time() - started_s < 0.01

    run(main())


def test_a_pull_that_finds_nothing_ends_when_its_time_is_over(tmp_path: Path) -> None:
    async def main() -> None:
        async with OneBroker(tmp_path) as broker:
            await broker.send("orders")
            loop = asyncio.get_running_loop()
            started_s = loop.time()
            answer = await broker.pull("orders", 1, sys_flag=6, suspend_timeout_millis=15_000)
            assert answer.code == ResponseCode.PULL_NOT_FOUND
            assert 15 <= loop.time() - started_s <= 16

    run(main())


def test_a_waiting_pull_by_tag_is_not_woken_by_other_tags(tmp_path: Path) -> None:
    async def main() -> None:
        async with OneBroker(tmp_path) as broker:
            await broker.send("orders", properties="TAGS\x01new\x02")
            connection = await broker.connect()
            fields = _fields(broker, "orders", 1, sys_flag=6, subscription="paid")
            waiting = asyncio.ensure_future(
                connection.call(RequestCode.PULL_MESSAGE, fields, timeout_s=60)
            )
            await pass_time(0.1)
            await broker.send("orders", b"no", properties="TAGS\x01new\x02")
            await pass_time(1)
            assert not waiting.done()
            await broker.send("orders", b"yes", properties="TAGS\x01paid\x02")
            (record,) = records(await waiting)
            assert record.body == b"yes"

    run(main())


def test_offsets_out_of_range_are_corrected(tmp_path: Path) -> None:
    async def main() -> None:
        async with OneBroker(tmp_path) as broker:
            await broker.send("orders")
            answer = await broker.pull("orders", 99)
            assert (answer.code, answer.remark) == (21, "OFFSET_OVERFLOW_BADLY")
            assert (answer.ext_fields or {})["nextBeginOffset"] == "1"

    run(main())


def test_in_sync_mode_the_answer_comes_when_the_message_is_durable(tmp_path: Path) -> None:
    async def main() -> None:
        files = small_files(tmp_path, flush_mode=FlushMode.SYNC)
        async with OneBroker(tmp_path, store_files=files) as broker:
            answers = await asyncio.gather(*(broker.send("orders", b"%d" % n) for n in range(20)))
            assert {answer.code for answer in answers} == {0}
            found = records(await broker.pull("orders"))
            assert [record.body for record in found] == [b"%d" % n for n in range(20)]

    run(main())


def test_messages_survive_a_restart(tmp_path: Path) -> None:
    async def first() -> None:
        async with OneBroker(tmp_path) as broker:
            for number in range(50):
                await broker.send("orders", b"%d" % number)

    async def second() -> None:
        async with OneBroker(tmp_path) as broker:
            found = records(await broker.pull("orders", 18))
            assert [record.body for record in found] == [b"%d" % n for n in range(18, 50)]

    run(first())
    run(second())


def test_sql92_is_refused_by_name_unless_it_is_switched_on(tmp_path: Path) -> None:
    async def main(*, enabled: bool) -> None:
        settings = BrokerSettings(address="127.0.0.1", broker_name="b1", sql92_enabled=enabled)
        async with OneBroker(tmp_path, settings) as broker:
            await broker.send("orders", b"a", properties="price\x015\x02")
            await broker.send("orders", b"b", properties="price\x0150\x02")
            answer = await broker.pull("orders", expression_type="SQL92", subscription="price > 10")
            if not enabled:
                assert answer.code == ResponseCode.SYSTEM_ERROR
                assert "enablePropertyFilter" in (answer.remark or "")
                return
            assert [record.body for record in records(answer)][-1] == b"b"
            bad = await broker.pull("orders", expression_type="SQL92", subscription="price >")
            assert bad.code == ResponseCode.SUBSCRIPTION_PARSE_FAILED

    run(main(enabled=False))
    run(main(enabled=True))


def _fields(broker: OneBroker, topic: str, offset: int, **changes: object) -> dict[str, str]:
    return encode_header(broker.pull_header(topic, offset, **changes))


def test_a_pull_notes_how_far_the_group_has_pulled(tmp_path: Path) -> None:
    async def main() -> None:
        async with OneBroker(tmp_path) as broker:
            for _ in range(5):
                await broker.send("orders")
            await broker.pull("orders", 1, max_msg_nums=3)
            stats = await broker.call(
                RequestCode.GET_CONSUME_STATS,
                GetConsumeStatsRequest(consumer_group="consumers", topic="orders"),
            )
            (offsets,) = [
                one
                for queue, one in decode_body(ConsumeStats, stats.body).offset_table.items()
                if queue.queue_id == 0 and queue.topic == "orders"
            ]
            assert offsets.pull_offset == 4

    run(main())


def test_a_pull_in_bulk_gets_more_than_32_messages(tmp_path: Path) -> None:
    async def main() -> None:
        async with OneBroker(tmp_path) as broker:
            for number in range(50):
                await broker.send("orders", b"%d" % number)
            plain = await broker.pull("orders", max_msg_nums=50)
            assert len(records(plain)) == 32
            fields = {**_fields(broker, "orders", 0, max_msg_nums=50), BULK_FIELD: "true"}
            bulk = await broker.client.call(ADDRESS, RequestCode.PULL_MESSAGE, fields, timeout_s=60)
            found = [record.body for record in records(bulk)]
            assert found == [b"%d" % number for number in range(50)]

    run(main())
