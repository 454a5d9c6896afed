"""Undecodable messages outside of consumers: queries, operators, replies and tools."""

import asyncio
from pathlib import Path

import pytest
from unit.admin.operating import admin_of
from unit.broker.one_broker import pass_time
from unit.client.consuming import Seen, Site, until
from unit.client.invalid_records import damage_record, send_invalid

from downrange.admin.offset_plan import Target, TargetKind
from downrange.admin.reading import TopicReader
from downrange.client.errors import InvalidStoredMessageError
from downrange.client.invalid_message import InvalidMessage
from downrange.client.request_reply import ReplyTable
from downrange.protocol.command import Command
from downrange.protocol.request_codes import RequestCode
from downrange.protocol.sys_flag import COMPRESSED
from downrange.remoting.connection import Connection
from downrange.testing.clock import ManualClock
from downrange.testing.virtual_time import run


def test_a_reader_of_a_topic_goes_on_and_reports_what_it_leaves_out(tmp_path: Path) -> None:
    async def main() -> None:
        async with Site(tmp_path) as site, admin_of(site) as admin:
            await site.create("orders")
            await site.send("orders", b"first")
            await send_invalid(site, tmp_path, "cut zlib")
            await site.send("orders", b"second")
            left_out: list[InvalidMessage] = []
            reader = TopicReader(admin.session, "orders", on_invalid=left_out.append)
            spans = await reader.spans(Target(TargetKind.EARLIEST))
            assert [one.body async for one in reader.read(spans)] == [b"first", b"second"]
            assert [one.queue_offset for one in left_out] == [1]
            came: list[bytes] = []

            def take(messages: object) -> bool:
                assert isinstance(messages, list)
                came.extend(one.body for one in messages)
                return len(came) < 2

            await reader.follow({queue: span.start for queue, span in spans.items()}, take)
            assert came == [b"first", b"second"]
            assert len(left_out) == 2

    run(main())


def test_a_query_by_key_finds_the_valid_messages(tmp_path: Path) -> None:
    async def main() -> None:
        async with Site(tmp_path) as site, admin_of(site) as admin:
            await site.create("orders")
            await site.send("orders", b"good", properties="KEYS\x01k\x02")
            await site.send("orders", b"not zlib", properties="KEYS\x01k\x02", sys_flag=COMPRESSED)
            await pass_time(1)
            found = await admin.messages.by_key("orders", "k")
            assert [one.body for one in found] == [b"good"]

    run(main())


def test_a_view_by_id_says_that_the_message_cannot_be_decoded(tmp_path: Path) -> None:
    async def main() -> None:
        async with Site(tmp_path) as site, admin_of(site) as admin:
            await site.create("orders")
            await site.send("orders", b"the one")
            reader = TopicReader(admin.session, "orders")
            spans = await reader.spans(Target(TargetKind.EARLIEST))
            (message,) = [one async for one in reader.read(spans)]
            damage_record(tmp_path, b"the one", lambda log, start: log.__setitem__(start + 88, 0))
            with pytest.raises(InvalidStoredMessageError, match="checksum differs"):
                await admin.messages.by_id(message.offset_message_id)

    run(main())


def test_a_message_that_cannot_be_decoded_is_not_consumed_on_demand(tmp_path: Path) -> None:
    async def main() -> None:
        async with Site(tmp_path) as site:
            await site.create("orders")
            consumer, seen = site.consumer(), Seen()
            consumer.subscribe("orders")
            consumer.listen(seen)
            await consumer.start()
            await site.send("orders", b"the one")
            await until(lambda: len(seen.messages) == 1)
            damage_record(tmp_path, b"the one", lambda log, start: log.__setitem__(start + 88, 0))
            answer = await site.client.call(
                site.broker_address("b1"),
                RequestCode.CONSUME_MESSAGE_DIRECTLY,
                {
                    "consumerGroup": "g",
                    "clientId": consumer.client_id,
                    "msgId": seen.messages[0].offset_message_id,
                    "brokerName": "b1",
                },
                timeout_s=15,
            )
            assert "cannot be decoded" in (answer.remark or ""), answer
            await consumer.shutdown()

    run(main())


def test_a_reply_that_cannot_be_decoded_ends_the_request_at_once() -> None:
    async def main() -> None:
        table = ReplyTable(ManualClock())
        future = table.expect("id-1")
        push = Command(
            code=RequestCode.PUSH_REPLY_MESSAGE_TO_CLIENT,
            ext_fields={
                "bornHost": "10.0.0.1:1",
                "storeHost": "10.0.0.1:2",
                "storeTimestamp": "1",
                "producerGroup": "g",
                "topic": "replies",
                "defaultTopic": "t",
                "defaultTopicQueueNums": "4",
                "queueId": "0",
                "sysFlag": str(COMPRESSED),
                "bornTimestamp": "1",
                "flag": "0",
                "properties": "CORRELATION_ID\x01id-1\x02",
            },
            body=b"not zlib",
        )
        _ = table.on_push(push, object.__new__(Connection))
        with pytest.raises(InvalidStoredMessageError, match="'replies'"):
            await asyncio.wait_for(future, 1)

    asyncio.run(main())
