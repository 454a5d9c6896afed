"""Topics, queues and groups can be limited; refusals name the setting and change nothing."""

from pathlib import Path

import pytest
from unit.broker.one_broker import OneBroker

from downrange.broker.quotas import Quota
from downrange.broker.settings import BrokerSettings
from downrange.model.topics import TopicConfig
from downrange.protocol.bodies.heartbeat import ConsumerGroup, Heartbeat
from downrange.protocol.bodies.json_body import encode_body
from downrange.protocol.request_codes import RequestCode
from downrange.protocol.response_codes import ResponseCode
from downrange.remoting.errors import Refused
from downrange.testing.virtual_time import run

REFUSED = ResponseCode.NO_PERMISSION


def topic(name: str, queues: int = 4) -> TopicConfig:
    return TopicConfig(topic_name=name, read_queue_nums=queues, write_queue_nums=queues)


def test_without_settings_there_is_no_limit() -> None:
    Quota().check_topics({}, [topic(f"t{number}") for number in range(1_000)])
    Quota().check_group(1_000_000)


def test_topics_are_counted_and_a_change_of_one_is_not_a_new_one() -> None:
    quota = Quota(topics_max=2)
    existing = {"a": topic("a")}
    quota.check_topics(existing, [topic("b")])
    quota.check_topics(existing, [topic("a", 9)])
    with pytest.raises(Refused, match="would have 3 topics, topicsMax is 2: delete some, or raise"):
        quota.check_topics(existing, [topic("b"), topic("c")])
    assert quota.refusals == {"topicsMax": 1}


def test_queues_of_all_topics_are_counted_and_may_always_become_fewer() -> None:
    quota = Quota(queues_max=10)
    existing = {"a": topic("a", 8), "b": topic("b", 4)}
    quota.check_topics(existing, [topic("a", 7)])
    with pytest.raises(Refused, match="would have 13 queues, queuesMax is 10"):
        quota.check_topics(existing, [topic("a", 9)])


def test_a_broker_at_its_quota_creates_nothing_more_and_serves_what_is_there(
    tmp_path: Path,
) -> None:
    async def main() -> None:
        settings = BrokerSettings(address="127.0.0.1", broker_name="b1")
        async with OneBroker(tmp_path, settings) as broker:
            tables = broker.broker._tables
            assert tables is not None
            tables.topics.quota = tables.groups.quota = quota = Quota(
                topics_max=len(tables.topics) + 1, groups_max=len(tables.groups)
            )
            assert (await broker.send("first")).code == 0
            refused = await broker.send("second")
            assert refused.code == REFUSED
            assert "topicsMax is" in (refused.remark or "")
            assert (await broker.send("first")).code == 0
            heartbeat = Heartbeat(
                client_id="c", consumer_data_set=(ConsumerGroup(group_name="consumers"),)
            )
            beat = await broker.call(RequestCode.HEART_BEAT, body=encode_body(heartbeat))
            assert beat.code == REFUSED
            assert "groupsMax is" in (beat.remark or "")
            assert "consumers" not in tables.groups
            assert quota.refusals == {"topicsMax": 1, "groupsMax": 1}

    run(main())


def test_the_settings_reach_the_tables(tmp_path: Path) -> None:
    async def main() -> None:
        settings = BrokerSettings(address="127.0.0.1", broker_name="b1", topics_max=1)
        async with OneBroker(tmp_path, settings) as broker:
            assert (await broker.send("one")).code == REFUSED, "the broker's own topics count"

    run(main())
