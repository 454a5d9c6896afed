"""What brokers and operators can make a name server remember."""

from pathlib import Path

import pytest
from unit.nameserver.building import MASTER, Cluster, registration, with_name_server

from downrange.model.topics import TopicConfig
from downrange.nameserver import kv_table
from downrange.nameserver.broker_names import BrokerFacts
from downrange.nameserver.registration_limits import QUEUES_PER_TOPIC_MAX, RegistrationLimits
from downrange.protocol.bodies.registration import Registration, TopicTable
from downrange.protocol.request_codes import RequestCode as Code
from downrange.remoting.errors import Refused

LIMITS = RegistrationLimits(brokers_max=3, topics_max=5, filter_servers_max=2)


def facts(**changes: str) -> BrokerFacts:
    known = {"cluster": "c", "name": "b", "address": "127.0.0.1:1", "ha_address": "127.0.0.1:2"}
    return BrokerFacts(
        **{**known, **changes}, broker_id=0, zone=None, acting_master=None, timeout_ms=None
    )


@pytest.mark.parametrize("field", ["cluster", "name", "address", "ha_address"])
def test_names_and_addresses_have_a_length(field: str) -> None:
    LIMITS.check_broker(facts(**{field: "x" * 255}), Registration(), 0)
    with pytest.raises(Refused, match="has 256 characters, the limit is 255"):
        LIMITS.check_broker(facts(**{field: "x" * 256}), Registration(), 0)


def test_there_are_so_many_brokers_and_no_more() -> None:
    LIMITS.check_broker(facts(), Registration(), 2)
    with pytest.raises(Refused, match="3 brokers are registered here, the limit is 3"):
        LIMITS.check_broker(facts(), Registration(), 3)


def test_a_broker_has_so_many_filter_servers_and_no_more() -> None:
    LIMITS.check_broker(facts(), Registration(filter_server_list=("a", "b")), 0)
    with pytest.raises(Refused, match="3 filter servers, the limit is 2"):
        LIMITS.check_broker(facts(), Registration(filter_server_list=("a", "b", "c")), 0)
    with pytest.raises(Refused, match="filter server"):
        LIMITS.check_broker(facts(), Registration(filter_server_list=("a" * 256,)), 0)


def test_there_are_so_many_topics_and_no_more() -> None:
    known = {"a", "b", "c", "d"}
    LIMITS.check_topics(known, 4, ["a", "b", "e"])
    with pytest.raises(Refused, match="4 topics are registered here and 2 would be new"):
        LIMITS.check_topics(known, 4, ["a", "e", "f"])
    with pytest.raises(Refused, match=r"topic 'x.* has 256 characters"):
        LIMITS.check_topics(known, 4, ["x" * 256])


def test_a_topic_with_an_absurd_number_of_queues_is_left_out(
    caplog: pytest.LogCaptureFixture,
) -> None:
    def topic(name: str, read: int, write: int) -> tuple[str, TopicConfig]:
        return name, TopicConfig(topic_name=name, read_queue_nums=read, write_queue_nums=write)

    limit = QUEUES_PER_TOPIC_MAX
    table = TopicTable(
        topic_config_table=dict(
            [
                topic("fine", 4, 4),
                topic("large", limit, limit),
                topic("absurd", 4, 2**31 - 1),
                topic("more", limit + 1, 4),
                topic("negative", -1, 4),
            ]
        )
    )
    taken = LIMITS.check_broker(facts(), Registration(topic_config_serialize_wrapper=table), 0)
    assert list(taken.topic_config_serialize_wrapper.topic_config_table) == ["fine", "large"]
    (record,) = caplog.records
    assert "broker 'b': 3 topics left out" in record.getMessage()


def test_a_name_server_says_why_it_refuses(tmp_path: Path) -> None:
    async def test(cluster: Cluster) -> None:
        assert (await cluster.register(MASTER, registration("T", "U"))).code == 0
        answer = await cluster.register(MASTER, registration("T", "U" * 300))
        assert answer.code == 1
        assert "not registered: topic 'UUU" in (answer.remark or "")
        fields = {"topic": "V" * 300}
        single = await cluster.ask(Code.REGISTER_TOPIC_IN_NAMESRV, fields)
        assert "has 300 characters" in (single.remark or "")

    with_name_server(tmp_path, test)


def test_the_key_value_table_has_a_size(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kv_table, "ENTRIES_MAX", 2)
    monkeypatch.setattr(kv_table, "CHARS_MAX", 100)

    async def test(cluster: Cluster) -> None:
        async def put(key: str, value: str) -> str | None:
            fields = {"namespace": "n", "key": key, "value": value}
            return (await cluster.ask(Code.PUT_KV_CONFIG, fields)).remark

        assert await put("a", "1") is None
        assert "would have 206 characters, the limit is 100" in (await put("b", "x" * 201) or "")
        assert await put("b", "2") is None
        assert "has 2 entries, which is its limit" in (await put("c", "3") or "")
        assert await put("b", "4") is None
        assert "key 'kkk" in (await put("k" * 1025, "5") or "")

    with_name_server(tmp_path, test)
