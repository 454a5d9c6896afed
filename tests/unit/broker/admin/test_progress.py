"""How far groups are, in numbers and in times."""

from pathlib import Path

from unit.broker.admin.desk import ADDRESS, GROUP, TOPIC, Desk, at_desk

from downrange.protocol.bodies.json_body import decode_body
from downrange.protocol.bodies.statistics import (
    BrokerConsumeStats,
    ConsumeStats,
    ConsumeTimeSpans,
    QueueProgress,
)
from downrange.protocol.request_codes import RequestCode as Code


async def half_consumed(desk: Desk) -> int:
    """Four messages in queue 0, two consumed; returns when the first one was stored."""
    await desk.create()
    desk.tables.groups.find(GROUP)
    first_ms = desk.clock.wall_ms() + 1000
    desk.put(4)
    desk.tables.offsets.commit(GROUP, TOPIC, 0, 2)
    desk.tables.offsets.note_pull(GROUP, TOPIC, 0, 3)
    return first_ms


def test_a_group_is_compared_with_each_readable_queue(tmp_path: Path) -> None:
    async def scenario(desk: Desk) -> None:
        first_ms = await half_consumed(desk)
        desk.stats.add_got(GROUP, TOPIC, 5, 50)
        desk.pass_time(1)
        answer = await desk.ask(Code.GET_CONSUME_STATS, consumerGroup=GROUP)
        stats = decode_body(ConsumeStats, answer.body)
        found = {queue.queue_id: one for queue, one in stats.offset_table.items()}
        assert found == {
            0: QueueProgress(
                broker_offset=4, consumer_offset=2, pull_offset=3, last_timestamp=first_ms + 1000
            ),
            1: QueueProgress(),
        }
        assert (stats.lag, stats.in_flight, stats.consume_tps) == (2, 1, 0.5)

    at_desk(tmp_path, scenario)


def test_topics_are_those_asked_for_else_those_still_subscribed(tmp_path: Path) -> None:
    async def scenario(desk: Desk) -> None:
        await half_consumed(desk)
        await desk.create("U", 1)
        desk.tables.offsets.commit(GROUP, "U", 0, 0)
        desk.tables.offsets.commit(GROUP, "deleted", 0, 0)

        async def topics(**fields: str) -> set[str]:
            answer = await desk.ask(Code.GET_CONSUME_STATS, consumerGroup=GROUP, **fields)
            stats = decode_body(ConsumeStats, answer.body)
            return {queue.topic for queue in stats.offset_table}

        assert await topics() == {TOPIC, "U"}
        assert await topics(topic="U") == {"U"}
        await desk.join("c@1")
        assert await topics() == {TOPIC}
        assert await topics(topic="U") == set()
        assert await topics(topicList="U; T ;nope") == {TOPIC, "U"}

    at_desk(tmp_path, scenario)


def test_an_unknown_group_is_nowhere(tmp_path: Path) -> None:
    async def scenario(desk: Desk) -> None:
        answer = await desk.ask(Code.GET_CONSUME_STATS, consumerGroup="nobody")
        assert answer.body == b'{"consumeTps":0.0,"offsetTable":{}}'
        assert (await desk.ask(Code.GET_CONSUME_STATS)).code == 0

    at_desk(tmp_path, scenario)


def test_all_groups_are_shown_with_the_sum_of_what_waits(tmp_path: Path) -> None:
    async def scenario(desk: Desk) -> None:
        await half_consumed(desk)
        answer = await desk.ask(Code.GET_BROKER_CONSUME_STATS, isOrder=False)
        stats = decode_body(BrokerConsumeStats, answer.body)
        assert [next(iter(one)) for one in stats.consume_stats_list] == desk.tables.groups.names()
        found = {group: lists for one in stats.consume_stats_list for group, lists in one.items()}
        assert [one.lag for one in found[GROUP]] == [2]
        assert found["TOOLS_CONSUMER"] == ()
        assert (stats.total_diff, stats.total_inflight_diff) == (2, 1)
        assert stats.broker_addr == ADDRESS
        for fields in ({"isOrder": True}, {"isOrder": "TRUE"}):
            answer = await desk.ask(Code.GET_BROKER_CONSUME_STATS, **fields)
            assert decode_body(BrokerConsumeStats, answer.body).total_diff == 0

    at_desk(tmp_path, scenario)


def test_time_spans_say_from_when_messages_are_and_how_late_the_group_is(tmp_path: Path) -> None:
    async def scenario(desk: Desk) -> None:
        first_ms = await half_consumed(desk)
        desk.clock.advance(500)
        answer = await desk.ask(Code.QUERY_CONSUME_TIME_SPAN, topic=TOPIC, group=GROUP)
        busy, idle = decode_body(ConsumeTimeSpans, answer.body).consume_time_span_set
        assert busy.min_time_stamp == first_ms
        assert busy.max_time_stamp == first_ms + 3000
        assert busy.consume_time_stamp == first_ms + 1000
        assert busy.delay_time == 1500
        assert busy.min_time_stamp_str is not None
        assert busy.min_time_stamp_str.endswith(f":{first_ms % 1000:03d}")
        assert (idle.min_time_stamp, idle.max_time_stamp, idle.consume_time_stamp) == (-1, -1, -1)
        assert idle.delay_time == 0
        assert (idle.min_time_stamp_str or "").endswith(":999")  # -1 ms, as RocketMQ writes it

    at_desk(tmp_path, scenario)


def test_time_spans_of_an_unknown_topic_are_refused(tmp_path: Path) -> None:
    async def scenario(desk: Desk) -> None:
        answer = await desk.ask(Code.QUERY_CONSUME_TIME_SPAN, topic="nope", group=GROUP)
        assert (answer.code, answer.remark) == (17, "topic[nope] not exist")

    at_desk(tmp_path, scenario)
