"""Topics by request: what is created, changed, listed and deleted, and what is refused."""

from pathlib import Path

from unit.broker.admin.desk import ADDRESS, BROKER, GROUP, TOPIC, Desk, at_desk

from downrange.model.names import SYSTEM_TOPICS, pop_retry_topic
from downrange.model.topics import TopicConfig
from downrange.protocol.bodies.groups import GroupList, GroupSubscription, TopicConfigList
from downrange.protocol.bodies.json_body import decode_body, encode_body
from downrange.protocol.bodies.registration import TopicTable
from downrange.protocol.bodies.statistics import QueueRange, TopicStats
from downrange.protocol.bodies.topics import TopicList
from downrange.protocol.json_text import write_json
from downrange.protocol.request_codes import RequestCode as Code
from downrange.protocol.response_codes import ResponseCode
from downrange.store.json_tables import topics_file


def test_a_created_topic_is_durable_and_announced_before_the_answer(tmp_path: Path) -> None:
    async def scenario(desk: Desk) -> None:
        await desk.create()
        assert desk.registered == 1
        saved = topics_file(desk.disk, desk.store.settings.config_path).load()
        assert saved is not None
        assert saved.topics[TOPIC].write_queue_nums == 2

    at_desk(tmp_path, scenario)


def test_a_topic_has_statistics_for_every_queue_before_its_first_message(tmp_path: Path) -> None:
    async def scenario(desk: Desk) -> None:
        await desk.create()
        answer = await desk.ask(Code.GET_TOPIC_STATS_INFO, topic=TOPIC)
        stats = decode_body(TopicStats, answer.body)
        assert [queue.queue_id for queue in stats.offset_table] == [0, 1]
        assert set(stats.offset_table.values()) == {QueueRange()}
        assert {queue.broker_name for queue in stats.offset_table} == {BROKER}

    at_desk(tmp_path, scenario)


def test_topic_statistics_show_offsets_time_and_speed(tmp_path: Path) -> None:
    async def scenario(desk: Desk) -> None:
        await desk.create()
        desk.put(3, queue_id=1)
        stored_ms = desk.clock.wall_ms()
        desk.pass_time(1)
        answer = await desk.ask(Code.GET_TOPIC_STATS_INFO, topic=TOPIC)
        stats = decode_body(TopicStats, answer.body)
        found = {queue.queue_id: one for queue, one in stats.offset_table.items()}
        assert found[1] == QueueRange(max_offset=3, last_update_timestamp=stored_ms)
        assert stats.topic_put_tps == 0.3

    at_desk(tmp_path, scenario)


def test_statistics_and_configuration_of_an_unknown_topic_are_refused(tmp_path: Path) -> None:
    async def scenario(desk: Desk) -> None:
        answer = await desk.ask(Code.GET_TOPIC_STATS_INFO, topic="nope")
        assert (answer.code, answer.remark) == (17, "topic[nope] not exist")
        answer = await desk.ask(Code.GET_TOPIC_CONFIG, topic="nope")
        assert (answer.code, answer.remark) == (17, "No topic in this broker. topic: nope")

    at_desk(tmp_path, scenario)


def test_a_name_a_filter_type_or_an_attribute_that_cannot_be_is_refused(tmp_path: Path) -> None:
    async def scenario(desk: Desk) -> None:
        good: dict[str, str | int | bool] = {
            "topic": TOPIC,
            "defaultTopic": "TBW102",
            "readQueueNums": 2,
            "writeQueueNums": 2,
            "perm": 6,
            "topicFilterType": "SINGLE_TAG",
            "order": False,
        }
        for name, value, code in (
            ("topic", "a b", ResponseCode.INVALID_PARAMETER),
            ("topic", "TBW102", ResponseCode.INVALID_PARAMETER),
            ("topicFilterType", "NO_TAG", ResponseCode.SYSTEM_ERROR),
            ("attributes", "+no.such=1", ResponseCode.SYSTEM_ERROR),
            ("perm", 99, ResponseCode.INVALID_PARAMETER),
        ):
            answer = await desk.ask(Code.UPDATE_AND_CREATE_TOPIC, **{**good, name: value})
            assert answer.code == code, (name, answer)
        assert TOPIC not in desk.tables.topics

    at_desk(tmp_path, scenario)


def test_a_list_of_topics_is_created_or_not_as_a_whole(tmp_path: Path) -> None:
    async def scenario(desk: Desk) -> None:
        good = TopicConfig(topic_name="A", attributes={"+message.type": "NORMAL"})
        for bad in (
            TopicConfig(topic_name="a b"),
            TopicConfig(topic_name="SELF_TEST_TOPIC"),
            TopicConfig(topic_name="B", topic_filter_type="?"),
            TopicConfig(topic_name="B", attributes={"message.type": "NORMAL"}),
        ):
            body = encode_body(TopicConfigList(topic_config_list=(good, bad)))
            answer = await desk.ask(Code.UPDATE_AND_CREATE_TOPIC_LIST, body)
            assert answer.code != 0
            assert "A" not in desk.tables.topics
        body = encode_body(TopicConfigList(topic_config_list=(good, TopicConfig(topic_name="B"))))
        assert (await desk.ask(Code.UPDATE_AND_CREATE_TOPIC_LIST, body)).code == 0
        config = desk.tables.topics.get("A")
        assert config is not None
        assert config.attributes == {"message.type": "NORMAL"}
        assert "B" in desk.tables.topics

    at_desk(tmp_path, scenario)


def test_a_list_without_a_body_is_refused(tmp_path: Path) -> None:
    async def scenario(desk: Desk) -> None:
        for body in (None, b"{}", b"{"):
            answer = await desk.ask(Code.UPDATE_AND_CREATE_TOPIC_LIST, body)
            assert answer.code == ResponseCode.SYSTEM_ERROR
            assert answer.remark

    at_desk(tmp_path, scenario)


def test_one_configuration_is_written_as_rocketmq_writes_it(tmp_path: Path) -> None:
    async def scenario(desk: Desk) -> None:
        await desk.create(queue_nums=1)
        answer = await desk.ask(Code.GET_TOPIC_CONFIG, topic=TOPIC, lo=True)
        assert answer.body == (
            b'{"attributes":{},"order":false,"perm":6,"readQueueNums":1,'
            b'"topicFilterType":"SINGLE_TAG","topicName":"T","topicSysFlag":0,"writeQueueNums":1}'
        )

    at_desk(tmp_path, scenario)


def test_all_topics_come_at_once_or_page_by_page(tmp_path: Path) -> None:
    async def scenario(desk: Desk) -> None:
        await desk.create()
        topics = desk.tables.topics
        answer = await desk.ask(Code.GET_ALL_TOPIC_CONFIG)
        assert answer.ext_fields == {"totalTopicNum": str(len(topics))}
        table = decode_body(TopicTable, answer.body)
        assert sorted(table.topic_config_table) == topics.names()
        assert table.data_version == topics.data_version
        seen: list[str] = []
        version = ""
        while len(seen) < len(topics):
            answer = await desk.ask(
                Code.GET_ALL_TOPIC_CONFIG,
                topicSeq=len(seen),
                dataVersion=version,
                maxTopicNum=5,
            )
            table = decode_body(TopicTable, answer.body)
            version = write_json(table.data_version).decode()
            seen += table.topic_config_table
        assert seen == topics.names()

    at_desk(tmp_path, scenario)


def test_pages_begin_anew_when_the_table_has_changed_or_the_request_is_odd(tmp_path: Path) -> None:
    async def scenario(desk: Desk) -> None:
        first = desk.tables.topics.names()[:2]
        old = write_json(desk.tables.topics.data_version).decode()
        await desk.create("%A")
        for version in (old, "", "no JSON", "[]"):
            answer = await desk.ask(
                Code.GET_ALL_TOPIC_CONFIG, topicSeq=7, dataVersion=version, maxTopicNum=3
            )
            table = decode_body(TopicTable, answer.body)
            assert list(table.topic_config_table) == ["%A", *first]

    at_desk(tmp_path, scenario)


def test_a_deleted_topic_takes_queues_offsets_counters_and_pop_retry_along(tmp_path: Path) -> None:
    async def scenario(desk: Desk) -> None:
        await desk.create()
        retry = pop_retry_topic(TOPIC, GROUP)
        await desk.create(retry, 1)
        desk.put(2)
        desk.put(1, topic=retry)
        desk.tables.offsets.commit(GROUP, TOPIC, 0, 1)
        desk.tables.offsets.commit(GROUP, retry, 0, 1)
        assert (await desk.ask(Code.DELETE_TOPIC_IN_BROKER, topic=TOPIC)).code == 0
        for topic in (TOPIC, retry):
            assert topic not in desk.tables.topics
            assert desk.store.queues.of_topic(topic) == []
            assert topic not in desk.stats.put_by_topic
        assert desk.tables.offsets.topics_of(GROUP) == set()
        assert not desk.tables.topics.is_dirty

    at_desk(tmp_path, scenario)


def test_system_topics_and_blank_names_are_not_deleted_and_unknown_ones_are_no_error(
    tmp_path: Path,
) -> None:
    async def scenario(desk: Desk) -> None:
        for topic in ("", " ", "TBW102", BROKER):
            answer = await desk.ask(Code.DELETE_TOPIC_IN_BROKER, topic=topic)
            assert answer.code == ResponseCode.INVALID_PARAMETER, topic
        assert (await desk.ask(Code.DELETE_TOPIC_IN_BROKER)).code == ResponseCode.INVALID_PARAMETER
        assert (await desk.ask(Code.DELETE_TOPIC_IN_BROKER, topic="../x")).code == 0

    at_desk(tmp_path, scenario)


def test_system_topics_are_listed_whether_they_are_there_or_not(tmp_path: Path) -> None:
    async def scenario(desk: Desk) -> None:
        answer = await desk.ask(Code.GET_SYSTEM_TOPIC_LIST_FROM_BROKER)
        found = decode_body(TopicList, answer.body)
        # This is what a 5.5.0 broker of this name lists.
        assert set(found.topic_list) == SYSTEM_TOPICS | {
            "DefaultCluster",
            "DefaultCluster_REPLY_TOPIC",
            BROKER,
            "rmq_sys_REVIVE_LOG_DefaultCluster",
            "rmq_sys_SYNC_BROKER_MEMBER_broker-a",
            "rmq_sys_wheel_timer",
        }
        assert found.broker_addr is None

    at_desk(tmp_path, scenario)


def test_cleaning_removes_empty_queues_that_no_table_names_and_no_others(tmp_path: Path) -> None:
    async def scenario(desk: Desk) -> None:
        await desk.create()
        for topic in (TOPIC, "orphan", "SCHEDULE_TOPIC_XXXX", "%LMQ%x"):
            desk.put(1, topic=topic)
        desk.store.queues.ensure("empty", 0)
        desk.store.append("not-visible-yet", 0, b"body", b"")
        assert (await desk.ask(Code.CLEAN_UNUSED_TOPIC)).code == 0
        left = {queue.topic for queue in desk.store.queues}
        assert left == {TOPIC, "orphan", "SCHEDULE_TOPIC_XXXX", "%LMQ%x", "not-visible-yet"}
        desk.store.flush_now()
        desk.store.dispatch_some()
        for topic in ("orphan", "not-visible-yet"):
            assert len(desk.store.read(topic, 0, 0, 1).views) == 1

    at_desk(tmp_path, scenario)


def test_who_consumes_a_topic_is_known_by_subscription_and_by_offset(tmp_path: Path) -> None:
    async def scenario(desk: Desk) -> None:
        await desk.create()
        await desk.join("c@1", "online")
        desk.tables.offsets.commit("offline", TOPIC, 0, 1)
        answer = await desk.ask(Code.QUERY_TOPIC_CONSUME_BY_WHO, topic=TOPIC)
        assert decode_body(GroupList, answer.body).group_list == ("offline", "online")
        answer = await desk.ask(Code.QUERY_TOPIC_CONSUME_BY_WHO, topic="nope")
        assert answer.body == b'{"groupList":[]}'
        answer = await desk.ask(Code.QUERY_TOPICS_BY_CONSUMER, group="offline")
        assert decode_body(TopicList, answer.body) == TopicList(
            topic_list=(TOPIC,), broker_addr=ADDRESS
        )
        answer = await desk.ask(Code.QUERY_TOPICS_BY_CONSUMER)
        assert decode_body(TopicList, answer.body).topic_list == ()

    at_desk(tmp_path, scenario)


def test_a_subscription_is_shown_while_the_group_is_online(tmp_path: Path) -> None:
    async def scenario(desk: Desk) -> None:
        await desk.join("c@1")
        answer = await desk.ask(Code.QUERY_SUBSCRIPTION_BY_CONSUMER, group=GROUP, topic=TOPIC)
        found = decode_body(GroupSubscription, answer.body)
        assert found.subscription_data is not None
        assert found.subscription_data.sub_string == "*"
        answer = await desk.ask(Code.QUERY_SUBSCRIPTION_BY_CONSUMER, group="nope", topic=TOPIC)
        assert answer.body == b'{"group":"nope","topic":"T"}'

    at_desk(tmp_path, scenario)
