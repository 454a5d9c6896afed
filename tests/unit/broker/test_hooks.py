"""Hooks of an embedding program: what they see, what they may refuse, what they cannot break."""

from pathlib import Path

import pytest
from unit.broker.one_broker import UNIQUE_KEY, OneBroker, SlowSyncs, records, small_files

from downrange.broker.hooks import (
    BrokerHooks,
    Delivery,
    MessageKind,
    SendBack,
    Sending,
    SendOutcome,
)
from downrange.protocol.batch import encode_batch
from downrange.protocol.headers.fields import encode_header
from downrange.protocol.headers.send import SendBackRequest, SendRequestV2
from downrange.protocol.request_codes import RequestCode
from downrange.protocol.response_codes import ResponseCode
from downrange.remoting.errors import Refused
from downrange.store.settings import FlushMode
from downrange.testing.virtual_time import run


class Witness:
    """Notes everything; refuses bodies of 13 bytes and pulls of the group "banned"."""

    def __init__(self) -> None:
        self.before: list[Sending] = []
        self.after: list[tuple[Sending, SendOutcome]] = []
        self.deliveries: list[Delivery] = []
        self.returned: list[SendBack] = []

    def before_send(self, sending: Sending) -> None:
        self.before.append(sending)
        if sending.body_bytes == 13:
            raise Refused(ResponseCode.NO_PERMISSION, "thirteen bytes are not wanted")

    def after_send(self, sending: Sending, outcome: SendOutcome) -> None:
        self.after.append((sending, outcome))

    def before_consume(self, delivery: Delivery) -> None:
        self.deliveries.append(delivery)
        if delivery.consumer_group == "banned":
            raise Refused(ResponseCode.NO_PERMISSION, "not for you")

    def after_send_back(self, send_back: SendBack) -> None:
        self.returned.append(send_back)


class Broken:
    """Fails in every way that it can."""

    def before_send(self, _sending: Sending) -> None:
        raise ValueError("before")

    def after_send(self, _sending: Sending, _outcome: SendOutcome) -> None:
        raise Refused(1, "after the fact")

    def before_consume(self, _delivery: Delivery) -> None:
        raise ValueError("consume")

    def after_send_back(self, _send_back: SendBack) -> None:
        raise ValueError("back")


def test_a_send_hook_sees_the_message_and_what_became_of_it(tmp_path: Path) -> None:
    async def main() -> None:
        witness = Witness()
        async with OneBroker(tmp_path, hooks=BrokerHooks(sends=[witness])) as broker:
            # The first one creates the topic and so goes another way.
            await broker.send("orders", b"hello", queue_id=3)
            answer = await broker.send("orders", b"hello", queue_id=3)
            sending, outcome = witness.after[-1]
            assert witness.before == [seen for seen, _ in witness.after]
            assert (sending.topic, sending.producer_group, sending.queue_id) == (
                "orders",
                "producers",
                3,
            )
            assert (sending.body_bytes, sending.kind) == (5, MessageKind.NORMAL)
            assert UNIQUE_KEY in sending.properties
            fields = answer.ext_fields or {}
            assert (outcome.code, outcome.is_stored) == (0, True)
            assert (outcome.message_id, outcome.queue_id) == (fields["msgId"], 3)
            assert str(outcome.queue_offset) == fields["queueOffset"] == "1"

    run(main())


def test_a_send_hook_can_refuse_a_message(tmp_path: Path) -> None:
    async def main() -> None:
        witness = Witness()
        async with OneBroker(tmp_path, hooks=BrokerHooks(sends=[witness])) as broker:
            await broker.send("orders", b"good")
            answer = await broker.send("orders", b"x" * 13)
            assert (answer.code, answer.remark) == (16, "thirteen bytes are not wanted")
            assert len(witness.after) == 1
            assert [record.body for record in records(await broker.pull("orders"))] == [b"good"]

    run(main())


def test_hooks_hear_of_refusals_of_the_broker_and_of_batches_and_kinds(tmp_path: Path) -> None:
    async def main() -> None:
        witness = Witness()
        async with OneBroker(tmp_path, hooks=BrokerHooks(sends=[witness])) as broker:
            await broker.send("orders", queue_id=99)
            assert witness.after[-1][1].code == ResponseCode.INVALID_PARAMETER
            assert not witness.after[-1][1].is_stored
            header = SendRequestV2(
                producer_group="producers",
                topic="orders",
                default_topic="TBW102",
                default_topic_queue_nums=4,
                queue_id=0,
                sys_flag=0,
                born_timestamp=1,
                flag=0,
                batch=True,
            )
            body = encode_batch([(0, b"a", b""), (0, b"b", b"")])
            answer = await broker.call(RequestCode.SEND_BATCH_MESSAGE, header, body)
            sending, outcome = witness.after[-1]
            assert sending.is_batch
            assert outcome.message_id == (answer.ext_fields or {})["msgId"]
            assert "," in (outcome.message_id or "")
            await broker.send("orders", properties="DELAY\x011\x02")
            await broker.send("orders", properties="__SHARDINGKEY\x01k\x02")
            await broker.send("orders", properties="TRAN_MSG\x01true\x02PGROUP\x01p\x02")
            kinds = [seen.kind for seen, _ in witness.after[-3:]]
            assert kinds == [MessageKind.DELAYED, MessageKind.ORDERED, MessageKind.HALF]
            connection = await broker.connect()
            connection.send_one_way(RequestCode.SEND_BATCH_MESSAGE, encode_header(header), body)
            await broker.send("orders")
            assert witness.after[-2][1] == SendOutcome(code=0)

    run(main())


def test_with_a_slow_disk_the_outcome_is_known_when_the_disk_has_answered(tmp_path: Path) -> None:
    async def main() -> None:
        witness = Witness()
        files = small_files(tmp_path, flush_mode=FlushMode.SYNC, sync_timeout_ms=2_000)
        syncs = SlowSyncs(1.0)
        hooks = BrokerHooks(sends=[witness])
        async with OneBroker(tmp_path, store_files=files, syncs=syncs, hooks=hooks) as broker:
            await broker.send("orders")
            syncs.seconds = 5.0
            assert (await broker.send("orders")).code == ResponseCode.FLUSH_DISK_TIMEOUT
            codes = [outcome.code for _, outcome in witness.after]
            assert codes == [0, ResponseCode.FLUSH_DISK_TIMEOUT]
            assert witness.after[1][1].is_stored

    run(main())


def test_a_consume_hook_sees_deliveries_and_can_refuse_them(tmp_path: Path) -> None:
    async def main() -> None:
        witness = Witness()
        async with OneBroker(tmp_path, hooks=BrokerHooks(consumes=[witness])) as broker:
            await broker.send("orders", b"one")
            answer = await broker.pull("orders")
            (record,) = records(answer)
            delivery = witness.deliveries[-1]
            assert (delivery.consumer_group, delivery.code) == ("consumers", 0)
            assert (delivery.message_count, delivery.size_bytes) == (1, len(answer.body or b""))
            await broker.pull("orders", 1)
            assert (witness.deliveries[-1].code, witness.deliveries[-1].message_count) == (19, 0)
            refused = await broker.pull("orders", consumer_group="banned")
            assert (refused.code, refused.remark, refused.body) == (16, "not for you", None)
            back = SendBackRequest(
                offset=record.physical_offset, group="consumers", delay_level=-1,
                origin_topic="orders", origin_msg_id="id",
            )  # fmt: skip
            await broker.call(RequestCode.CONSUMER_SEND_MSG_BACK, back)
            assert witness.returned == [
                SendBack(
                    consumer_group="consumers", topic="orders", message_id="id", is_dead_letter=True
                )
            ]

    run(main())


def test_a_hook_that_fails_is_logged_and_changes_nothing(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async def main() -> None:
        witness = Witness()
        hooks = BrokerHooks(sends=[Broken(), witness], consumes=[Broken(), witness])
        async with OneBroker(tmp_path, hooks=hooks) as broker:
            assert (await broker.send("orders", b"fine")).code == 0
            (record,) = records(await broker.pull("orders"))
            assert record.body == b"fine"
            assert len(witness.after) == len(witness.deliveries) == 1

    run(main())
    for text in ("Broken.before_send", "Broken.after_send", "Broken.before_consume"):
        assert text in caplog.text
