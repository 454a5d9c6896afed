"""The broker as a whole: runtime table, counters, delay levels, old files, queues."""

import re
from pathlib import Path

import pytest
from unit.broker.admin.desk import GROUP, TOPIC, Desk, at_desk
from unit.store.building import log_file

from downrange.broker.handlers.admin.runtime_info import readable_bytes
from downrange.model.names import SCHEDULE_TOPIC
from downrange.protocol.bodies.consume_queue import ConsumeQueueView
from downrange.protocol.bodies.json_body import decode_body
from downrange.protocol.bodies.statistics import BrokerStatsData, StatsWindow
from downrange.protocol.bodies.topics import KvTable
from downrange.protocol.request_codes import RequestCode as Code
from downrange.protocol.response_codes import ResponseCode
from downrange.store.offset_tables import DelayOffsets

# What a 5.5.0 broker without delayed messages tells, but for the directory in one key.
KEYS_OF_5_5 = """
    EndTransactionQueueSize EndTransactionThreadPoolQueueCapacity ackThreadPoolQueueCapacity
    ackThreadPoolQueueHeadWaitTimeMills ackThreadPoolQueueSize bootTimestamp brokerActive
    brokerVersionDesc commitLogDirCapacity commitLogDiskRatio commitLogMaxOffset commitLogMinOffset
    consumeQueueDiskRatio dispatchBehindBytes dispatchMaxBuffer earliestMessageTimeStamp getFoundTps
    getMessageEntireTimeMax getMissTps getTotalTps getTransferredTps litePullThreadPoolQueueCapacity
    litePullThreadPoolQueueHeadWaitTimeMills litePullThreadPoolQueueSize msgGetTotalTodayMorning
    msgGetTotalTodayNow msgGetTotalYesterdayMorning msgPutTotalTodayMorning msgPutTotalTodayNow
    msgPutTotalYesterdayMorning pageCacheLockTimeMills pullThreadPoolQueueCapacity
    pullThreadPoolQueueHeadWaitTimeMills pullThreadPoolQueueSize putLatency99 putLatency999
    putMessageAverageSize putMessageDistributeTime putMessageEntireTimeMax putMessageFailedTimes
    putMessageSizeTotal putMessageTimesTotal putTps queryThreadPoolQueueCapacity
    queryThreadPoolQueueHeadWaitTimeMills queryThreadPoolQueueSize remainHowManyDataToFlush
    remainTransientStoreBufferNumbs runtime sendThreadPoolQueueCapacity
    sendThreadPoolQueueHeadWaitTimeMills sendThreadPoolQueueSize startAcceptSendRequestTimeStamp
    timerCongestNum timerDequeueTps timerEnqueueTps timerOffsetBehind timerReadBehind"""


async def runtime_info(desk: Desk) -> dict[str, str]:
    answer = await desk.ask(Code.GET_BROKER_RUNTIME_INFO)
    return decode_body(KvTable, answer.body).table


def test_the_runtime_table_has_the_keys_of_rocketmq(tmp_path: Path) -> None:
    async def scenario(desk: Desk) -> None:
        table = await runtime_info(desk)
        directory = f"commitLogDiskRatio_{desk.store.settings.commit_log_path}"
        assert table.keys() == {*KEYS_OF_5_5.split(), directory}
        assert table["brokerVersionDesc"] == "V5_5_0"
        assert table["brokerActive"] == "true"
        assert table["earliestMessageTimeStamp"] == "-1"
        assert table["putTps"] == "  ", "Java's tools split it at blanks and find nothing"

    at_desk(tmp_path, scenario)


def test_the_runtime_table_has_real_numbers(tmp_path: Path) -> None:
    async def scenario(desk: Desk) -> None:
        await desk.create()
        boot_ms = desk.clock.wall_ms()
        desk.put(4)
        desk.stats.add_got(GROUP, TOPIC, 2, 20)
        desk.stats.put_failures = 3
        desk.rates.puts.add(12)
        desk.rates.pulls.found += 1
        desk.rates.pulls.max_ms = 8
        desk.store.append(TOPIC, 0, b"neither durable nor dispatched", b"")
        desk.disk.used_ratio = 0.29
        desk.pass_time(61)
        desk.put(1)
        desk.pass_time(10)
        desk.delay_offsets = DelayOffsets(offsets={3: 5})
        desk.put(1, topic=SCHEDULE_TOPIC, queue_id=2)
        desk.store.append(TOPIC, 0, b"not dispatched", b"")
        table = await runtime_info(desk)
        log = desk.store.log
        assert table["bootTimestamp"] == str(boot_ms)
        assert table["runtime"] == "[ 0 days, 0 hours, 1 minutes, 17 seconds ]"
        assert table["putMessageTimesTotal"] == "6"
        assert table["putMessageSizeTotal"] == str(desk.stats.put.size)
        assert table["putMessageFailedTimes"] == "3"
        assert table["putMessageEntireTimeMax"] == "12"
        assert "[10~50ms]:1 " in table["putMessageDistributeTime"]
        assert table["getMessageEntireTimeMax"] == "8"
        assert table["msgPutTotalTodayNow"] == "5"  # not the delayed one
        assert table["msgGetTotalTodayNow"] == "2"
        assert table["commitLogMaxOffset"] == str(log.max_offset)
        behind = log.max_offset - desk.store.dispatched_offset
        assert behind > 0
        assert table["dispatchBehindBytes"] == str(behind)
        assert table["remainHowManyDataToFlush"] == f"{behind} B"
        assert table["commitLogDiskRatio"] == table["consumeQueueDiskRatio"] == "0.29"
        assert table["commitLogDirCapacity"] == "Total : 1000 B, Free : 710 B."
        assert table["earliestMessageTimeStamp"] == str(boot_ms + 1000)
        assert table["scheduleMessageOffset_3"] == "5,1"
        put, per_minute, long = table["putTps"].split(" ")
        assert float(put) == pytest.approx(0.1, rel=0.2)
        assert float(per_minute) > 0
        assert long == ""
        assert len(table["getTotalTps"].split(" ")) == 3

    at_desk(tmp_path, scenario)


def test_numbers_of_bytes_are_written_as_rocketmq_writes_them() -> None:
    assert readable_bytes(1023) == "1023 B"
    assert readable_bytes(1386) == "1.4 KiB"
    assert readable_bytes(256_336_396_288) == "238.7 GiB"
    assert readable_bytes(1 << 70) == "1024.0 EiB"


def test_a_counter_is_shown_for_minute_hour_and_day(tmp_path: Path) -> None:
    async def scenario(desk: Desk) -> None:
        desk.put(6)
        size = desk.stats.put.size
        desk.pass_time(1)
        code = Code.VIEW_BROKER_STATS_DATA
        answer = await desk.ask(code, statsName="TOPIC_PUT_NUMS", statsKey=TOPIC)
        expected = StatsWindow(sum=6, tps=0.6, avgpt=1.0)
        assert decode_body(BrokerStatsData, answer.body) == BrokerStatsData(
            stats_minute=expected, stats_hour=expected, stats_day=expected
        )
        answer = await desk.ask(code, statsName="TOPIC_PUT_SIZE", statsKey=TOPIC)
        assert decode_body(BrokerStatsData, answer.body).stats_minute.sum == size

    at_desk(tmp_path, scenario)


def test_a_counter_that_is_none_is_refused(tmp_path: Path) -> None:
    async def scenario(desk: Desk) -> None:
        answer = await desk.ask(Code.VIEW_BROKER_STATS_DATA, statsName="NO", statsKey="T@G")
        assert (answer.code, answer.remark) == (1, "The stats <NO> <T@G> not exist")
        assert (await desk.ask(Code.VIEW_BROKER_STATS_DATA)).code == ResponseCode.SYSTEM_ERROR

    at_desk(tmp_path, scenario)


def test_delay_offsets_are_written_with_bare_numbers_as_keys(tmp_path: Path) -> None:
    async def scenario(desk: Desk) -> None:
        desk.delay_offsets = DelayOffsets(offsets={1: 10, 2: 0})
        answer = await desk.ask(Code.GET_ALL_DELAY_OFFSET)
        assert answer.body == (
            b'{"dataVersion":{"counter":0,"stateVersion":0,"timestamp":0},"offsetTable":{1:10,2:0}}'
        )
        assert (await desk.ask(Code.GET_ALL_DELAY_OFFSET, b"a body")).body == answer.body

    at_desk(tmp_path, scenario)


def test_expired_files_of_the_log_go_at_the_next_round_whatever_the_hour(tmp_path: Path) -> None:
    async def scenario(desk: Desk) -> None:
        root = desk.store.settings.root
        while len(desk.store.log.chain.segments) < 3:
            desk.put(1)
        oldest = log_file(root)
        desk.disk.modified[oldest.name] = 0
        desk.store.retention._hours = frozenset()
        assert desk.store.expire_some() == 0
        assert (await desk.ask(Code.DELETE_EXPIRED_COMMITLOG)).code == 0
        assert desk.store.expire_some() == 1
        assert not oldest.exists()

    at_desk(tmp_path, scenario)


def test_queue_files_without_messages_go_at_once(tmp_path: Path) -> None:
    async def scenario(desk: Desk) -> None:
        while len(desk.store.log.chain.segments) < 3:
            desk.put(1)
        queue = desk.store.queues.get(TOPIC, 0)
        assert queue is not None
        count = len(queue.chain.segments)
        assert desk.store.log.chain.drop_first()
        assert (await desk.ask(Code.CLEAN_EXPIRED_CONSUMEQUEUE)).code == 0
        assert len(queue.chain.segments) < count
        assert queue.min_offset > 0

    at_desk(tmp_path, scenario)


def test_entries_of_a_queue_are_shown_across_its_files(tmp_path: Path) -> None:
    async def scenario(desk: Desk) -> None:
        desk.put(13)  # ten fill a file
        answer = await desk.ask(Code.QUERY_CONSUME_QUEUE, topic=TOPIC, queueId=0, index=8, count=4)
        view = decode_body(ConsumeQueueView, answer.body)
        queue = desk.store.queues.get(TOPIC, 0)
        assert queue is not None
        assert [(one.physic_offset, one.physic_size, one.tags_code) for one in view.queue_data] == [
            queue.entry(index) for index in range(8, 12)
        ]
        assert (view.min_queue_index, view.max_queue_index) == (0, 13)
        assert (view.subscription_data, view.filter_data) == (None, None)

    at_desk(tmp_path, scenario)


def test_a_damaged_entry_is_shown_as_one(tmp_path: Path) -> None:
    async def scenario(desk: Desk) -> None:
        desk.put(2)
        queue = desk.store.queues.get(TOPIC, 0)
        assert queue is not None
        queue.make_hole(1, 100, 50)
        answer = await desk.ask(Code.QUERY_CONSUME_QUEUE, topic=TOPIC, queueId=0, index=0, count=9)
        sound, hole = decode_body(ConsumeQueueView, answer.body).queue_data
        assert sound.msg is None
        assert "damaged" in (hole.msg or "")

    at_desk(tmp_path, scenario)


def test_a_queue_is_shown_with_what_a_group_wants_of_it(tmp_path: Path) -> None:
    async def scenario(desk: Desk) -> None:
        desk.put(1)
        fields: dict[str, str | int] = {"topic": TOPIC, "queueId": 0, "index": 0, "count": 1}
        code = Code.QUERY_CONSUME_QUEUE
        answer = await desk.ask(code, **fields, consumerGroup=GROUP)
        view = decode_body(ConsumeQueueView, answer.body)
        assert view.filter_data == "G@T is not online!"
        await desk.join("c@1")
        answer = await desk.ask(code, **fields, consumerGroup=GROUP)
        view = decode_body(ConsumeQueueView, answer.body)
        assert view.filter_data == "null"
        assert view.subscription_data is not None

    at_desk(tmp_path, scenario)


@pytest.mark.parametrize(
    ("queue_id", "index", "count", "remark"),
    [
        (7, 0, 1, r"7@T is not exist!"),
        (0, 100, 1, r"Index 100 of 0@T is not exist! It has 0 to 1"),
        (0, -1, 1, r"Index -1 of 0@T is not exist! .*"),
    ],
)
def test_a_place_that_no_queue_has_is_refused(
    tmp_path: Path, queue_id: int, index: int, count: int, remark: str
) -> None:
    async def scenario(desk: Desk) -> None:
        desk.put(2)
        answer = await desk.ask(
            Code.QUERY_CONSUME_QUEUE, topic=TOPIC, queueId=queue_id, index=index, count=count
        )
        assert answer.code == ResponseCode.SYSTEM_ERROR
        assert re.fullmatch(remark, answer.remark or "")

    at_desk(tmp_path, scenario)


def test_a_negative_count_shows_no_entries(tmp_path: Path) -> None:
    async def scenario(desk: Desk) -> None:
        desk.put(2)
        answer = await desk.ask(Code.QUERY_CONSUME_QUEUE, topic=TOPIC, queueId=0, index=0, count=-3)
        assert decode_body(ConsumeQueueView, answer.body).queue_data == ()

    at_desk(tmp_path, scenario)
