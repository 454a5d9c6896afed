"""One message that cannot be decoded never blocks a queue, and never gets lost unnoticed."""

import logging
from pathlib import Path

import pytest
from unit.broker.one_broker import pass_time
from unit.client.consuming import Seen, Site, until
from unit.client.invalid_records import (
    DAMAGES,
    SENT,
    Post,
    dead_letters,
    send_invalid,
    three_around_one,
)

from downrange.client.client import connect
from downrange.client.consumer_settings import MessageModel
from downrange.client.dead_letter import (
    ORIGIN_QUEUE_ID,
    ORIGIN_QUEUE_OFFSET,
    ORIGIN_TOPIC,
    REASON,
    dead_letter,
)
from downrange.client.invalid_message import InvalidMessage, InvalidMessagePolicy
from downrange.client.push_consumer import PushConsumer
from downrange.client.session_table import SessionTable
from downrange.model.topics import MessageQueue
from downrange.protocol import property_names as names
from downrange.protocol.properties import encode_properties
from downrange.testing.virtual_time import run

ORDERS = MessageQueue("orders", "b1", 0)
VARIANTS = [*SENT, *DAMAGES]
# Records whose fields cannot be told apart; all that is left of them is their bytes.
UNREADABLE = {"unknown magic", "body longer than the record", "negative length"}


async def _start(consumer: PushConsumer, seen: Seen, topic: str = "orders") -> None:
    consumer.subscribe(topic)
    consumer.listen(seen)
    await consumer.start()


async def _start_in_order(consumer: PushConsumer, seen: Seen) -> None:
    consumer.subscribe("orders")
    consumer.listen_in_order(seen.in_order)
    await consumer.start()


@pytest.mark.parametrize("in_order", [False, True])
@pytest.mark.parametrize("variant", VARIANTS)
def test_valid_messages_are_delivered_and_the_invalid_one_becomes_a_dead_letter(
    tmp_path: Path, variant: str, in_order: bool, caplog: pytest.LogCaptureFixture
) -> None:
    async def main() -> None:
        async with Site(tmp_path) as site:
            body = await three_around_one(site, tmp_path, variant)
            consumer, seen = site.consumer(), Seen()
            await (_start_in_order if in_order else _start)(consumer, seen)
            await until(lambda: consumer.consumed_offsets("orders").get(ORDERS) == 4)
            assert sorted(seen.bodies) == [b"first", b"second", b"third"]
            assert not in_order or seen.bodies == [b"first", b"second", b"third"]
            counts = consumer.invalid_message_counts
            assert (counts.received, counts.dead_lettered, counts.skipped) == (1, 1, 0)
            await consumer.shutdown()
            (letter,) = await dead_letters(site, 1)
            told = letter.properties
            assert told[ORIGIN_TOPIC] == told[names.RETRY_TOPIC] == "orders"
            assert (told[ORIGIN_QUEUE_ID], told[ORIGIN_QUEUE_OFFSET]) == ("0", "1")
            assert told[REASON]
            if variant in UNREADABLE:
                assert body in letter.body
            else:
                assert letter.body == body or variant == "wrong checksum"
                assert told["colour"] == "red"

    with caplog.at_level(logging.WARNING, "downrange.client"):
        run(main())
    lines = [one.getMessage() for one in caplog.records if "cannot be decoded" in one.getMessage()]
    assert len(lines) == 1, "logged once"
    assert "topic=orders" in lines[0]
    assert "queue=0" in lines[0]
    assert "offset=1" in lines[0]


def test_a_hook_takes_the_message_instead_of_the_policy(tmp_path: Path) -> None:
    async def main() -> None:
        async with Site(tmp_path) as site:
            body = await three_around_one(site, tmp_path, "cut zlib")
            consumer, seen = site.consumer(), Seen()
            taken: list[InvalidMessage] = []
            consumer.on_invalid_message = taken.append
            await _start(consumer, seen)
            await until(lambda: consumer.consumed_offsets("orders").get(ORDERS) == 4)
            (invalid,) = taken
            assert (invalid.queue, invalid.queue_offset, invalid.body) == (ORDERS, 1, body)
            assert invalid.reason == "compressed body is cut off"
            assert invalid.properties["colour"] == "red"
            assert consumer.invalid_message_counts.given_to_hook == 1
            assert consumer.invalid_message_counts.dead_lettered == 0
            await consumer.shutdown()

    run(main())


def test_a_hook_that_fails_leaves_the_message_to_the_policy(tmp_path: Path) -> None:
    async def main() -> None:
        async with Site(tmp_path) as site:
            await three_around_one(site, tmp_path, "cut zlib")
            consumer, seen = site.consumer(), Seen()

            async def hook(_: InvalidMessage) -> None:
                raise ValueError("no place for it")

            consumer.on_invalid_message = hook
            await _start(consumer, seen)
            await until(lambda: consumer.consumed_offsets("orders").get(ORDERS) == 4)
            await consumer.shutdown()
            await dead_letters(site, 1)

    run(main())


@pytest.mark.parametrize(
    "changes",
    [
        {"invalid_messages": InvalidMessagePolicy.SKIP},
        {"message_model": MessageModel.BROADCASTING},
    ],
    ids=["skip", "broadcasting"],
)
def test_a_skipped_message_leaves_no_dead_letter(
    tmp_path: Path, changes: dict[str, object]
) -> None:
    async def main() -> None:
        async with Site(tmp_path) as site:
            await three_around_one(site, tmp_path, "cut zlib")
            folder = str(tmp_path / "offsets")
            consumer = site.consumer(offsets_folder=folder, **changes)  # type: ignore[arg-type]
            seen = Seen()
            await _start(consumer, seen)
            await until(lambda: consumer.consumed_offsets("orders").get(ORDERS) == 4)
            assert sorted(seen.bodies) == [b"first", b"second", b"third"]
            assert consumer.invalid_message_counts.skipped == 1
            await consumer.shutdown()

    run(main())
    assert list(tmp_path.rglob("consumequeue/orders"))
    assert not list(tmp_path.rglob("consumequeue/%DLQ%g"))


@pytest.mark.parametrize("in_order", [False, True])
def test_a_queue_stops_in_front_of_the_message_while_others_go_on(
    tmp_path: Path, in_order: bool, caplog: pytest.LogCaptureFixture
) -> None:
    async def main() -> None:
        async with Site(tmp_path) as site:
            await site.create("orders", 2)
            await site.send("orders", b"first")
            await send_invalid(site, tmp_path, "cut lz4")
            await site.send("orders", b"behind")
            await site.send("orders", b"elsewhere", 1)
            consumer = site.consumer(invalid_messages=InvalidMessagePolicy.STOP)
            seen = Seen()
            await (_start_in_order if in_order else _start)(consumer, seen)
            await pass_time(300)  # longer than a pull loop may be silent
            await site.send("orders", b"later", 1)
            await until(lambda: b"later" in seen.bodies)
            assert sorted(seen.bodies) == [b"elsewhere", b"first", b"later"]
            assert consumer.consumed_offsets("orders")[ORDERS] == 1
            assert consumer.invalid_message_counts.stopped_queues == 1
            consumer.reset_offsets("orders", {ORDERS: 2})
            await until(lambda: b"behind" in seen.bodies)
            await consumer.shutdown()

    with caplog.at_level(logging.ERROR, "downrange.client"):
        run(main())
    (line,) = [one.getMessage() for one in caplog.records if "queue stopped" in one.getMessage()]
    assert "offset=1" in line
    assert "invalid_messages" in line


@pytest.mark.parametrize("in_order", [False, True])
def test_no_offset_is_committed_beyond_a_dead_letter_that_is_not_published(
    tmp_path: Path, in_order: bool
) -> None:
    async def main() -> None:
        async with Site(tmp_path) as site:
            await three_around_one(site, tmp_path, "cut zstd")
            consumer, seen, post = site.consumer(), Seen(), Post(failures=4)
            consumer._retry_sender = post.send
            await (_start_in_order if in_order else _start)(consumer, seen)
            await until(lambda: len(seen.bodies) == 3)
            await pass_time(2)
            assert consumer.consumed_offsets("orders")[ORDERS] == 1
            await until(lambda: consumer.consumed_offsets("orders")[ORDERS] == 4)
            assert post.tries == 5
            assert len(post.letters) == 1
            await consumer.shutdown()

    run(main())


@pytest.mark.parametrize("in_order", [False, True])
def test_the_limits_of_the_process_queue_bound_what_runs_ahead_of_a_dead_letter(
    tmp_path: Path, in_order: bool
) -> None:
    async def main() -> None:
        async with Site(tmp_path) as site:
            await site.create("orders")
            await send_invalid(site, tmp_path, "cut zstd")
            await site.send_many("orders", 200)
            consumer = site.consumer(span_max=40, pull_batch_size=8)
            seen, post = Seen(), Post(failures=1 << 30)
            consumer._retry_sender = post.send
            await (_start_in_order if in_order else _start)(consumer, seen)
            await pass_time(600)
            assert 40 <= len(seen.bodies) <= 48
            assert consumer.consumed_offsets("orders").get(ORDERS, 0) == 0
            assert post.tries < 20, "tried again with growing delays"
            post.failures = 0
            await until(lambda: len(seen.bodies) == 200, 120)
            await consumer.shutdown()

    run(main())


def test_a_stream_goes_on_behind_an_invalid_message(tmp_path: Path) -> None:
    async def main() -> None:
        async with Site(tmp_path) as site:
            await three_around_one(site, tmp_path, "zlib flag, lz4 body")
            sessions = SessionTable(nonce=1, around=site.surroundings())
            async with (
                connect(settings=site.client_settings(), sessions=sessions) as mq,
                mq.consume("orders", group="g", start_at="first", idle_timeout_s=20) as stream,
            ):
                got = [message.body async for message in stream]
            assert sorted(got) == [b"first", b"second", b"third"]
            await dead_letters(site, 1)

    run(main())


def test_a_dead_letter_keeps_what_fits_and_says_where_it_came_from() -> None:
    properties = {"KEYS": "k", "DELAY": "3", "TRAN_MSG": "true", "UNIQ_KEY": "ID"}
    text = encode_properties({**properties, "long": "x" * 32_000})
    letter = dead_letter(
        InvalidMessage(
            queue=MessageQueue("%RETRY%g", "b1", 3),
            queue_offset=9,
            reason="bad \x01 thing" + "y" * 5000,
            body=b"raw",
            properties_text=text + b"RETRY_TOPIC\x01orders\x02odd\x01a\x01b\x02",
        ),
        "g",
    )
    told = letter.properties
    assert (letter.topic, letter.body) == ("%RETRY%g", b"raw")
    assert told[names.RETRY_TOPIC] == told[names.DLQ_ORIGIN_TOPIC] == "orders"
    assert told[ORIGIN_TOPIC] == "%RETRY%g"
    assert (told["KEYS"], told[names.DLQ_ORIGIN_MESSAGE_ID]) == ("k", "ID")
    assert not {"DELAY", "TRAN_MSG", "odd"} & set(told)
    assert len(encode_properties(told)) <= 32_767 - 2_000
