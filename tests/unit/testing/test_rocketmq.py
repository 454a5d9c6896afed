"""The cluster that a test holds: time that is moved, and faults on demand."""

from collections.abc import Iterator
from datetime import timedelta

import pytest

from downrange import sync
from downrange.client.consumer_settings import PushConsumerSettings
from downrange.client.errors import BrokerRefusal, RocketMQError
from downrange.client.listeners import Batch
from downrange.client.settings import ClientSettings, ProducerSettings
from downrange.client.start_offset import ConsumeFromWhere
from downrange.embedded.cluster import ClusterError
from downrange.protocol.response_codes import ResponseCode
from downrange.testing.rocketmq import NAME_SERVER, RocketMQ

NO_RETRY = ProducerSettings(retries=0)


@pytest.fixture
def cluster() -> Iterator[RocketMQ]:
    with RocketMQ() as cluster:
        yield cluster
        assert cluster.failures == []


def bodies(cluster: RocketMQ, topic: str = "orders") -> list[bytes]:
    return [message.body for message in cluster.messages(topic)]


def impatient(cluster: RocketMQ) -> sync.Client:
    """A client for sends that shall fail soon."""
    settings = ProducerSettings(retries=0, send_timeout_s=0.5)
    return sync.connect(cluster.name_servers, producer=settings)


def test_a_delayed_message_comes_when_time_is_moved_and_not_before(cluster: RocketMQ) -> None:
    cluster.clock.freeze()
    with sync.connect(cluster.name_servers) as mq:
        mq.send("orders", b"later", delay_s=3600)
        mq.send("orders", b"now")
        assert bodies(cluster) == [b"now"]
        cluster.clock.advance(timedelta(minutes=59))
        assert bodies(cluster) == [b"now"]
        cluster.clock.advance(61)
        assert bodies(cluster) == [b"now", b"later"]
    (now, later) = cluster.messages("orders")
    assert later.store_timestamp_ms - now.store_timestamp_ms >= 3_600_000
    with pytest.raises(ValueError, match="forward only"):
        cluster.clock.advance(-1)


def test_retries_and_the_dead_letter_take_no_time(cluster: RocketMQ) -> None:
    cluster.clock.freeze()
    seen: list[int] = []
    cluster.create_topic("orders", queues=1)
    cluster.create_group("billing")
    consumer = sync.PushConsumer(
        "billing",
        client=ClientSettings(name_servers=cluster.name_servers),
        settings=PushConsumerSettings(
            max_reconsume_times=3, consume_from_where=ConsumeFromWhere.FIRST_OFFSET
        ),
    )

    def fail(batch: Batch, context: object) -> None:
        del context
        seen.extend(message.reconsume_times for message in batch)
        raise RuntimeError("no")

    consumer.subscribe("orders")
    consumer.listen(fail)
    with consumer, sync.connect(cluster.name_servers) as mq:
        mq.send("orders", b"bad")
        passed_s = cluster.clock.advance_until(lambda: bodies(cluster, "%DLQ%billing"), step_s=10)
    assert seen == [0, 1, 2, 3]
    assert passed_s >= 10 + 30 + 60  # the delays of the three retries
    assert bodies(cluster, "%DLQ%billing") == [b"bad"]


def test_a_condition_that_never_holds_is_a_timeout(
    cluster: RocketMQ, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("downrange.testing.rocketmq.WAIT_S_MAX", 0.01)
    with pytest.raises(TimeoutError, match="after 20 s"):
        cluster.clock.advance_until(lambda: False, step_s=10, at_most_s=20)
    with pytest.raises(TimeoutError):
        cluster.wait_until(lambda: False, timeout_s=0.01)


def test_the_next_send_is_refused_with_code_and_text(cluster: RocketMQ) -> None:
    cluster.refuse_next_send(
        code=ResponseCode.MESSAGE_ILLEGAL, remark="too blue", topic="orders", count=1
    )
    with sync.connect(cluster.name_servers, producer=NO_RETRY) as mq:
        mq.send("others", b"fine")
        with pytest.raises(BrokerRefusal, match="too blue") as caught:
            mq.send("orders", b"blue")
        assert caught.value.code == ResponseCode.MESSAGE_ILLEGAL
        assert cluster.refusals_left == 0
        mq.send("orders", b"green")
    assert bodies(cluster) == [b"green"]


def test_a_client_that_tries_again_gets_over_a_refusal(cluster: RocketMQ) -> None:
    cluster.refuse_next_send(count=2)
    with sync.connect(cluster.name_servers) as mq:
        mq.send("orders", b"1")
    assert (bodies(cluster), cluster.refusals_left) == ([b"1"], 0)


def test_a_refused_pull_is_pulled_again(cluster: RocketMQ) -> None:
    cluster.refuse_next_pull(topic="orders")
    with sync.connect(cluster.name_servers) as mq:
        mq.send("orders", b"1")
        stream = mq.consume("orders", group="g", start_at="first", idle_timeout_s=30)
        assert next(iter(stream)).body == b"1"
    assert cluster.refusals_left == 0


def test_cut_connections_are_made_again(cluster: RocketMQ) -> None:
    with sync.connect(cluster.name_servers) as mq:
        mq.send("orders", b"1")
        assert cluster.drop_connections() >= 1
        mq.send("orders", b"2")
        assert cluster.drop_connections(NAME_SERVER) >= 1
    assert bodies(cluster) == [b"1", b"2"]


def test_lost_answers_are_time_outs_of_sends_that_were_done(cluster: RocketMQ) -> None:
    cluster.create_topic("orders")
    with sync.connect(cluster.name_servers) as mq, impatient(cluster) as hasty:
        mq.send("orders", b"1")
        cluster.lose_answers("broker-a")
        with pytest.raises(RocketMQError):
            hasty.send("orders", b"2")
        cluster.heal()
        cluster.drop_connections()
        mq.send("orders", b"3")
    assert bodies(cluster) == [b"1", b"2", b"3"]


def test_delayed_answers_wait_for_the_clock(cluster: RocketMQ) -> None:
    cluster.create_topic("orders")
    cluster.clock.freeze()
    with sync.connect(cluster.name_servers) as mq, impatient(cluster) as hasty:
        mq.send("orders", b"1")
        cluster.delay_answers(5.0)
        with pytest.raises(RocketMQError):
            hasty.send("orders", b"2")
        cluster.clock.advance(5.0)
        cluster.delay_answers(0.001)
        cluster.clock.thaw()
        mq.send("orders", b"3")
    assert bodies(cluster) == [b"1", b"2", b"3"]


def test_refused_connections_are_an_error_at_the_client(cluster: RocketMQ) -> None:
    with sync.connect(cluster.name_servers) as mq, impatient(cluster) as hasty:
        cluster.refuse_connections()
        with pytest.raises(RocketMQError):
            hasty.send("orders", b"1")
        cluster.heal()
        mq.send("orders", b"2")
    with pytest.raises(ValueError, match="no server 'x'; there are broker-a, name server"):
        cluster.refuse_connections("x")


def test_servers_stop_start_and_die_while_time_stands_still(cluster: RocketMQ) -> None:
    cluster.clock.freeze()
    with sync.connect(cluster.name_servers) as mq:
        mq.send("orders", b"1")
        cluster.restart_broker()
        mq.send("orders", b"2")
        cluster.kill_broker()
        cluster.start_broker()
        mq.send("orders", b"3")
        cluster.stop_name_server()
        mq.send("orders", b"4")
        cluster.start_name_server()
    assert bodies(cluster) == [b"1", b"2", b"3", b"4"]
    assert cluster.clock.is_frozen


def test_a_cleared_cluster_is_as_new(cluster: RocketMQ) -> None:
    cluster.create_topic("orders", queues=2)
    with sync.connect(cluster.name_servers) as mq:
        for body in (b"1", b"2"):
            mq.send("orders", body)
        stream = mq.consume("orders", group="g", start_at="first", idle_timeout_s=30)
        assert {message.body for _, message in zip("12", stream, strict=False)} == {b"1", b"2"}
    cluster.wait_until(lambda: cluster.lag("g", "orders") == 0)
    cluster.refuse_next_send()
    cluster.kill_broker()
    cluster.clear()
    assert bodies(cluster) == []
    assert cluster.refusals_left == 0
    with sync.connect(cluster.name_servers) as mq:
        assert mq.send("orders", b"3").queue_offset == 0
        stream = mq.consume("orders", group="g", start_at="first", idle_timeout_s=30)
        assert next(iter(stream)).body == b"3"


def test_hours_can_pass_and_clients_stay(cluster: RocketMQ) -> None:
    cluster.clock.freeze()
    with sync.connect(cluster.name_servers) as mq:
        mq.send("orders", b"1")
        cluster.clock.advance(timedelta(hours=3))
        assert mq.send("orders", b"2").queue.broker_name == "broker-a"
        stream = mq.consume("orders", group="g", start_at="first", idle_timeout_s=30)
        assert next(iter(stream)).body in {b"1", b"2"}


def test_a_cluster_that_does_not_run_says_so() -> None:
    cluster = RocketMQ()
    with pytest.raises(ClusterError, match="does not run"):
        cluster.drop_connections()
    cluster.stop()
