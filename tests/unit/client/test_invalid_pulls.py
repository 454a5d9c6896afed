"""Messages that cannot be decoded, as pull and lite pull consumers meet them."""

from dataclasses import replace
from pathlib import Path

import pytest
from unit.client.consuming import FIRST, Site, until
from unit.client.invalid_records import DAMAGES, SENT, Post, dead_letters, three_around_one

from downrange.client.consumer_settings import LitePullSettings
from downrange.client.invalid_message import InvalidMessage, InvalidMessagePolicy
from downrange.client.lite_pull_consumer import LitePullConsumer
from downrange.client.pull_consumer import PullConsumer
from downrange.client.session_table import SessionTable
from downrange.model.topics import MessageQueue
from downrange.runtime.blocking import InLine
from downrange.testing.virtual_time import run

ORDERS = MessageQueue("orders", "b1", 0)
VARIANTS = [*SENT, *DAMAGES]


def test_what_is_decompressed_of_one_response_is_bounded(tmp_path: Path) -> None:
    async def main() -> None:
        async with Site(tmp_path) as site:
            await site.create("orders")
            body = SENT["bomb"].body  # 65 MiB when decompressed
            for _ in range(3):
                await site.send("orders", body, sys_flag=SENT["bomb"].sys_flag)
            client = replace(site.client_settings(), body_bytes_max=66 * 1024 * 1024)
            consumer = PullConsumer(
                "g",
                client=client,
                sessions=SessionTable(nonce=1, around=site.surroundings()),
                blocking=InLine(),
            )
            async with consumer:
                found = await consumer.pull(ORDERS, 0)
                assert [one.queue_offset for one in found.messages] == [0]
                assert found.next_offset == 1, "the rest is asked for again"
                found = await consumer.pull(ORDERS, 2)
                assert found.next_offset == 3

    run(main())


def _lite(site: Site, **changes: object) -> LitePullConsumer:
    settings = LitePullSettings(**{"consume_from_where": FIRST, **changes})  # type: ignore[arg-type]
    return LitePullConsumer(
        "g",
        client=site.client_settings(),
        settings=settings,
        sessions=SessionTable(nonce=1, around=site.surroundings()),
        blocking=InLine(),
    )


@pytest.mark.parametrize("variant", VARIANTS)
def test_a_lite_pull_consumer_polls_valid_messages_and_commits_behind_the_invalid_one(
    tmp_path: Path, variant: str
) -> None:
    async def main() -> None:
        async with Site(tmp_path) as site:
            await three_around_one(site, tmp_path, variant)
            consumer = _lite(site)
            consumer.subscribe("orders")
            got: list[bytes] = []
            async with consumer:
                while len(got) < 3:
                    got += [one.body for one in await consumer.poll(30)]
                await until(lambda: consumer.invalid_message_counts.dead_lettered == 1)
                await consumer.commit()
                assert await consumer.committed(ORDERS) == 4
            assert got == [b"first", b"second", b"third"]
            await dead_letters(site, 1)

    run(main())


def test_a_lite_pull_consumer_commits_nothing_beyond_an_unpublished_dead_letter(
    tmp_path: Path,
) -> None:
    async def main() -> None:
        async with Site(tmp_path) as site:
            await three_around_one(site, tmp_path, "cut zlib")
            consumer = _lite(site)
            consumer.subscribe("orders")
            post = Post(failures=3)
            async with consumer:
                assert consumer._invalid_messages_ is not None
                consumer._invalid_messages_._sender = post.send
                got = [one.body for one in await consumer.poll(30)]
                assert got == [b"first", b"second", b"third"]
                await consumer.commit()
                assert await consumer.committed(ORDERS) == 1
                await until(lambda: len(post.letters) == 1)
                await consumer.commit()
                assert await consumer.committed(ORDERS) == 4

    run(main())


def test_a_lite_pull_consumer_stops_and_goes_on_after_a_seek(tmp_path: Path) -> None:
    async def main() -> None:
        async with Site(tmp_path) as site:
            await three_around_one(site, tmp_path, "cut zlib")
            consumer = _lite(site, invalid_messages=InvalidMessagePolicy.STOP)
            consumer.subscribe("orders")
            async with consumer:
                assert [one.body for one in await consumer.poll(30)] == [b"first"]
                assert await consumer.poll(30) == []
                await consumer.seek(ORDERS, 2)
                assert [one.body for one in await consumer.poll(30)] == [b"second", b"third"]

    run(main())


@pytest.mark.parametrize("variant", VARIANTS)
def test_a_pull_returns_valid_messages_and_reports_the_invalid_one(
    tmp_path: Path, variant: str
) -> None:
    async def main() -> None:
        async with Site(tmp_path) as site:
            await three_around_one(site, tmp_path, variant)
            consumer = PullConsumer(
                "g",
                client=site.client_settings(),
                sessions=SessionTable(nonce=1, around=site.surroundings()),
                blocking=InLine(),
            )
            hooked: list[InvalidMessage] = []
            consumer.on_invalid_message = hooked.append
            messages: list[bytes] = []
            invalid: list[InvalidMessage] = []
            async with consumer:
                offset = 0
                while offset < 4:
                    found = await consumer.pull(ORDERS, offset)
                    messages += [one.body for one in found.messages]
                    invalid += found.invalid
                    assert found.next_offset > offset
                    offset = found.next_offset
                assert messages == [b"first", b"second", b"third"]
                assert [one.queue_offset for one in invalid] == [1]
                assert hooked == invalid
                await consumer.dead_letter(invalid[0])
            await dead_letters(site, 1)

    run(main())
