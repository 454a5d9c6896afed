"""Every parcel is stored, or the task hears why not."""

from collections.abc import Iterator
from dataclasses import replace

import pytest
from unit.spark.writing import QUEUES, ScriptedProducer

from downrange.client.errors import (
    BrokerRefusal,
    BrokerUnreachableError,
    NoRouteCause,
    NoRouteError,
)
from downrange.client.message import SendStatus
from downrange.model.topics import MessageQueue
from downrange.protocol.response_codes import ResponseCode
from downrange.runtime.clock import SystemClock
from downrange.spark import parcel_sender
from downrange.spark.parcel_sender import ParcelSender, SendRules, SinkSendError
from downrange.spark.parcels import Parcel
from downrange.sync.io_thread import IoThread

RULES = SendRules(
    in_flight_max=4, send_timeout_s=5.0, delivery_timeout_s=30.0, requires_send_ok=True
)


@pytest.fixture
def io(monkeypatch: pytest.MonkeyPatch) -> Iterator[IoThread]:
    monkeypatch.setattr(parcel_sender, "PAUSE_S_FIRST", 0.0001)
    thread = IoThread()
    yield thread
    thread.close()


def parcel(number: int, queue: MessageQueue | None = None) -> Parcel:
    return Parcel("orders", queue, 3, 3 * number, 3 * number + 2, b"%d" % number)


def sender_of(producer: ScriptedProducer, io: IoThread, rules: SendRules = RULES) -> ParcelSender:
    return ParcelSender(producer, io, rules, SystemClock())


def test_all_parcels_are_sent_when_finish_returns(io: IoThread) -> None:
    producer = ScriptedProducer()
    sender = sender_of(producer, io)
    for number in range(50):
        sender.send(parcel(number))
    sender.finish()
    assert [body for _, body, _ in producer.sent] == [b"%d" % number for number in range(50)]
    assert sender.parcels == 50


def test_what_passes_is_tried_again(io: IoThread) -> None:
    producer = ScriptedProducer(
        BrokerUnreachableError("gone"),
        BrokerRefusal(ResponseCode.SYSTEM_BUSY, "too much", "broker 1.2.3.4:10911"),
    )
    sender = sender_of(producer, io)
    sender.send(parcel(0))
    sender.finish()
    assert [body for _, body, _ in producer.sent] == [b"0"] * 3
    assert sender.repeats == 2


def test_a_refusal_fails_at_once_with_the_words_of_the_broker(io: IoThread) -> None:
    refusal = BrokerRefusal(
        ResponseCode.NO_PERMISSION, "sending is forbidden", "broker 1.2.3.4:10911"
    )
    producer = ScriptedProducer(refusal)
    sender = sender_of(producer, io)
    sender.send(parcel(7))
    with pytest.raises(SinkSendError) as caught:
        sender.finish()
    text = str(caught.value)
    for part in ("rows from 21 to 23", "'orders'", "1.2.3.4:10911", "forbidden", "code 16"):
        assert part in text
    assert len(producer.sent) == 1
    with pytest.raises(SinkSendError):
        sender.send(parcel(8))


def test_the_delivery_timeout_ends_the_tries(io: IoThread) -> None:
    producer = ScriptedProducer(*(BrokerUnreachableError("gone") for _ in range(10_000)))
    sender = sender_of(producer, io, replace(RULES, delivery_timeout_s=0.05))
    sender.send(parcel(0))
    with pytest.raises(SinkSendError, match=r"not stored: 3 rows.*gone \(code 10001\)"):
        sender.finish()


def test_a_topic_that_was_never_there_fails_at_once_and_one_that_was_is_waited_for(
    io: IoThread,
) -> None:
    unknown = NoRouteError("orders", NoRouteCause.TOPIC_UNKNOWN)
    sender = sender_of(ScriptedProducer(unknown), io)
    sender.send(parcel(0))
    with pytest.raises(SinkSendError, match="do not know the topic"):
        sender.finish()
    producer = ScriptedProducer(SendStatus.SEND_OK, unknown)
    sender = sender_of(producer, io, replace(RULES, in_flight_max=1))
    sender.send(parcel(0))
    sender.send(parcel(1))
    sender.finish()
    assert [body for _, body, _ in producer.sent] == [b"0", b"1", b"1"]


def test_less_than_stored_is_a_failure_unless_it_is_accepted(io: IoThread) -> None:
    sender = sender_of(ScriptedProducer(SendStatus.FLUSH_DISK_TIMEOUT), io)
    sender.send(parcel(0))
    with pytest.raises(SinkSendError, match=r"FLUSH_DISK_TIMEOUT.*requireSendOk"):
        sender.finish()
    lenient = sender_of(
        ScriptedProducer(SendStatus.FLUSH_DISK_TIMEOUT), io, replace(RULES, requires_send_ok=False)
    )
    lenient.send(parcel(0))
    lenient.finish()


def test_parcels_of_a_queue_go_in_order_and_stop_at_the_first_that_fails(io: IoThread) -> None:
    queue = QUEUES[1]
    producer = ScriptedProducer(
        BrokerUnreachableError("gone"),
        BrokerUnreachableError("gone"),
        SendStatus.SEND_OK,
        SendStatus.SEND_OK,
        BrokerRefusal(ResponseCode.SYSTEM_ERROR, "broken", "broker x"),
    )
    sender = sender_of(producer, io)

    def send_all() -> None:
        for number in range(6):
            sender.send(parcel(number, queue))
        sender.finish()

    with pytest.raises(SinkSendError, match=r"rows from 6 to 8.*broken"):
        send_all()
    assert [body for _, body, _ in producer.sent] == [b"0", b"0", b"0", b"1", b"2"]
    assert all(place == queue for _, _, place in producer.sent)


def test_queues_have_one_order_for_everybody(io: IoThread) -> None:
    sender = sender_of(ScriptedProducer(), io)
    assert list(sender.queues_of("orders")) == QUEUES
