"""`connect`, `send` and `async for`: what is acknowledged, what comes again, how it ends."""

import asyncio
import contextlib
from datetime import UTC, datetime
from pathlib import Path

import pytest
from unit.broker.one_broker import pass_time
from unit.client.consuming import Site, until
from unit.client.producing import stored

from downrange.broker.settings import BrokerSettings
from downrange.client.client import Client, connect
from downrange.client.errors import BrokerRefusal, ClientStateError, InvalidMessageError
from downrange.client.message import ReceivedMessage
from downrange.client.session import ServiceState
from downrange.client.session_table import SessionTable
from downrange.client.settings import ClientSettings
from downrange.client.start_offset import ConsumeFromWhere
from downrange.protocol.java_hash import java_hash
from downrange.testing.virtual_time import START_MS, run


def client_of(site: Site) -> Client:
    table = SessionTable(nonce=1, around=site.surroundings())
    return connect(settings=site.client_settings(), sessions=table)


async def drain(
    mq: Client, count: int, *, group: str = "billing", idle_s: float = 60
) -> list[ReceivedMessage]:
    """What the group gets next, all of it acknowledged."""
    found: list[ReceivedMessage] = []
    async with mq.consume("orders", group=group, start_at="first", idle_timeout_s=idle_s) as stream:
        async for message in stream:
            found.append(message)
            if len(found) == count:
                stream.ack(message)
                break
    return found


def test_what_is_sent_carries_its_arguments(tmp_path: Path) -> None:
    async def main() -> None:
        async with Site(tmp_path) as site, client_of(site) as mq:
            await site.create("orders", 4)
            receipt = await mq.send(
                "orders", b"1", tag="new", key="42", properties={"a": "b"}, order_key="customer 7"
            )
            await mq.send("orders", b"2", keys=["x", "y"], order_key="customer 7")
            first, second = await stored(site, "orders")
            assert (first.tag, first.keys, first.properties["a"]) == ("new", ["42"], "b")
            assert first.message_id == receipt.message_id
            assert second.keys == ["x", "y"]
            assert first.queue_id == second.queue_id == abs(java_hash("customer 7")) % 4

    run(main())


def test_a_delay_is_a_level_where_there_is_one_and_else_needs_a_timer(tmp_path: Path) -> None:
    async def main() -> None:
        async with Site(tmp_path) as site, client_of(site) as mq:
            await site.create("orders")
            await mq.send("orders", b"later", delay_s=5)
            assert await stored(site, "orders") == []
            (message,) = await drain(mq, 1)
            assert message.properties["DELAY"] == "2"
            with pytest.raises(BrokerRefusal, match=r"no timer wheel.*1, 5, 10, 30 s"):
                await mq.send("orders", b"odd", delay_s=7)
            with pytest.raises(InvalidMessageError, match="give one of delay_level"):
                await mq.send("orders", b"both", delay_s=5, delay_level=3)

    run(main())


def test_leaving_the_body_acknowledges(tmp_path: Path) -> None:
    async def main() -> None:
        async with Site(tmp_path) as site:
            await site.create("orders", 4)
            sent = await site.send_many("orders", 50, queues=4)
            async with client_of(site) as mq:
                stream = mq.consume("orders", group="billing", start_at="first", idle_timeout_s=5)
                seen = [message.body async for message in stream]
                assert sorted(seen) == sorted(sent)
                assert await site.members("billing") == []  # the loop's end has left the group
            async with client_of(site) as mq:
                assert await drain(mq, 1, idle_s=30) == []

    run(main())


def test_an_error_in_the_body_has_the_message_come_again(tmp_path: Path) -> None:
    async def main() -> None:
        async with Site(tmp_path) as site:
            await site.create("orders")
            await site.send_many("orders", 3)

            async def fail_at(body: bytes) -> None:
                async with client_of(site) as mq:
                    async for message in mq.consume("orders", group="billing", start_at="first"):
                        if message.body == body:
                            raise ZeroDivisionError

            with pytest.raises(ZeroDivisionError):
                await fail_at(b"1")
            async with client_of(site) as mq:
                found = await drain(mq, 2)
            # What was waiting behind it was never handed out, so it counts no try.
            assert [(one.body, one.reconsume_times) for one in found] == [(b"2", 0), (b"1", 1)]
            assert found[1].topic == "orders"

    run(main())


def test_a_loop_that_is_left_is_noticed_while_the_client_lives_on(tmp_path: Path) -> None:
    async def main() -> None:
        async with Site(tmp_path) as site, client_of(site) as mq:
            await site.create("orders")
            await site.send_many("orders", 2)
            with contextlib.suppress(ZeroDivisionError):
                async for _ in mq.consume("orders", group="billing", start_at="first"):
                    raise ZeroDivisionError
            found = await drain(mq, 2)  # the same group, at once
            assert [(one.body, one.reconsume_times) for one in found] == [(b"1", 0), (b"0", 1)]
            async for message in mq.consume("orders", group="other", start_at="first"):
                assert message.body == b"0"
                break
            await pass_time(1)
            assert await site.members("other") == []
            again = await drain(mq, 2, group="other")
            assert [one.body for one in again] == [b"1", b"0"]

    run(main())


def test_a_message_can_be_settled_without_leaving_the_loop(tmp_path: Path) -> None:
    async def main() -> None:
        async with Site(tmp_path) as site, client_of(site) as mq:
            await site.create("orders")
            await site.send_many("orders", 3)
            seen: list[tuple[bytes, int]] = []
            async with mq.consume("orders", group="g", start_at="first") as stream:
                async for message in stream:
                    seen.append((message.body, message.reconsume_times))
                    if message.body == b"1" and message.reconsume_times == 0:
                        stream.retry(message, delay_level=1)
                    if len(seen) == 4:
                        stream.ack(message)
                        with pytest.raises(ClientStateError, match="settled already"):
                            stream.ack(seen_twice(message))
                        break
            assert seen == [(b"0", 0), (b"1", 0), (b"2", 0), (b"1", 1)]
            assert await drain(mq, 1, group="g", idle_s=60) == []

    def seen_twice(message: ReceivedMessage) -> ReceivedMessage:
        return ReceivedMessage(**{f: getattr(message, f) for f in message.__struct_fields__})

    run(main())


def test_a_cancelled_task_gives_its_message_back(tmp_path: Path) -> None:
    async def main() -> None:
        async with Site(tmp_path) as site:
            await site.create("orders")
            await site.send_many("orders", 1)
            has_it = asyncio.Event()

            async def work() -> None:
                async with client_of(site) as mq:
                    async for _ in mq.consume("orders", group="billing", start_at="first"):
                        has_it.set()
                        await pass_time(3600)

            task = asyncio.get_running_loop().create_task(work())
            await has_it.wait()
            task.cancel()
            await asyncio.wait((task,))
            assert task.cancelled()
            async with client_of(site) as mq:
                (found,) = await drain(mq, 1)
            assert found.reconsume_times == 1

    run(main())


def test_several_loops_share_a_stream_and_its_concurrency(tmp_path: Path) -> None:
    async def main() -> None:
        async with Site(tmp_path) as site, client_of(site) as mq:
            await site.create("orders", 4)
            sent = await site.send_many("orders", 40, queues=4)
            seen: list[bytes] = []
            busy, busy_max = 0, 0
            async with mq.consume("orders", group="g", start_at="first", concurrency=3) as stream:

                async def work() -> None:
                    nonlocal busy, busy_max
                    async for message in stream:
                        busy += 1
                        busy_max = max(busy, busy_max)
                        await pass_time(0.1)
                        busy -= 1
                        seen.append(message.body)
                        if len(seen) == 40:
                            stream.stop()

                async with asyncio.TaskGroup() as group:
                    for _ in range(5):
                        group.create_task(work())
            assert sorted(seen) == sorted(sent)
            assert busy_max == 3
            assert await drain(mq, 1, group="g", idle_s=30) == []

    run(main())


def test_no_more_is_fetched_than_prefetch_allows(tmp_path: Path) -> None:
    async def main() -> None:
        async with Site(tmp_path) as site, client_of(site) as mq:
            await site.create("orders")
            await site.send_many("orders", 100)
            async with mq.consume("orders", group="g", start_at="first", prefetch=10) as stream:
                async for _ in stream:
                    await pass_time(5)
                    (held,) = (
                        one
                        for queue, one in stream.consumer._running().rebalance.working.items()
                        if queue.topic == "orders"
                    )
                    # A pull that is begun below the bound may bring a whole batch.
                    assert 10 <= held.count <= 20
                    break

    run(main())


def test_in_order_a_failed_message_comes_first_again(tmp_path: Path) -> None:
    async def main() -> None:
        async with Site(tmp_path) as site, client_of(site) as mq:
            await site.create("orders")
            sent = await site.send_many("orders", 10)
            seen: list[bytes] = []
            tries = 0
            stream = mq.consume(
                "orders", group="g", in_order=True, start_at="first", idle_timeout_s=30
            )
            async for message in stream:
                if message.body == b"4" and tries < 2:
                    tries += 1
                    stream.retry(message)
                    continue
                seen.append(message.body)
            assert (seen, tries) == (sent, 2)

    run(main())


def test_tags_sql_and_time_choose(tmp_path: Path) -> None:
    async def main() -> None:
        async with Site(tmp_path) as site, client_of(site) as mq:
            await site.create("orders")
            await mq.send("orders", b"a", tag="new")
            await mq.send("orders", b"b", tag="paid")
            await mq.send("orders", b"c", tag="void")
            when = datetime.fromtimestamp(START_MS / 1000 + 5, UTC)
            by_tags = mq.consume(
                "orders", group="g1", tags="new || paid", start_at="first", idle_timeout_s=5
            )
            assert [one.body async for one in by_tags] == [b"a", b"b"]
            by_sql = mq.consume(
                "orders", group="g2", sql="TAGS = 'void'", start_at="first", idle_timeout_s=5
            )
            with pytest.raises(BrokerRefusal, match="enablePropertyFilter"):
                _ = [one.body async for one in by_sql]
            settings = mq.consume("orders", group="g3", start_at=when).consumer.settings
            assert settings.consume_from_where is ConsumeFromWhere.TIMESTAMP
            assert settings.consume_timestamp_ms == START_MS + 5_000
            with pytest.raises(InvalidMessageError, match="by tags or by sql"):
                mq.consume("orders", group="g4", tags="a", sql="a = 1")
            with pytest.raises(InvalidMessageError, match="'first', 'last' or a datetime"):
                mq.consume("orders", group="g4", start_at="middle")  # type: ignore[arg-type]

    run(main())


def test_an_sql_expression_chooses_by_properties(tmp_path: Path) -> None:
    async def main() -> None:
        allowed = BrokerSettings(sql92_enabled=True)
        async with Site(tmp_path, broker_settings=allowed) as site, client_of(site) as mq:
            await site.create("orders")
            for price in (5, 50, 500):
                await mq.send("orders", b"%d" % price, properties={"price": str(price)})
            dear = mq.consume(
                "orders", group="g", sql="price BETWEEN 10 AND 100", start_at="first",
                idle_timeout_s=5,
            )  # fmt: skip
            assert [one.body async for one in dear] == [b"50"]

    run(main())


def test_a_stream_that_cannot_close_does_not_keep_the_others_open(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def main() -> None:
        async with Site(tmp_path) as site:
            await site.create("orders")
            mq = client_of(site)
            await mq.open()
            streams = [mq.consume("orders", group=f"g{number}") for number in range(3)]
            for stream in streams:
                await stream.start()

            async def fails() -> None:
                raise OSError("the disk with the offsets is gone")

            monkeypatch.setattr(streams[1].consumer, "shutdown", fails)
            with pytest.raises(OSError, match="the disk"):
                await mq.aclose()
            running = [stream.consumer.state is ServiceState.RUNNING for stream in streams]
            assert running == [False, True, False]
            assert mq.producer.state is ServiceState.SHUTDOWN_ALREADY

    run(main())


def test_closing_the_client_ends_loops_that_wait(tmp_path: Path) -> None:
    async def main() -> None:
        async with Site(tmp_path) as site:
            await site.create("orders")
            mq = client_of(site)
            with pytest.raises(ClientStateError, match="not connected yet"):
                mq.consume("orders", group="g")
            await mq.open()
            seen: list[bytes] = []
            ended = False

            async def work() -> None:
                nonlocal ended
                seen.extend([one.body async for one in mq.consume("orders", group="g")])
                ended = True

            task = asyncio.get_running_loop().create_task(work())
            await until(lambda: mq._streams)
            await pass_time(5)
            await mq.aclose()
            await asyncio.wait((task,), timeout=5)
            assert ended
            assert not mq._streams
            with pytest.raises(ClientStateError, match="connect again"):
                await mq.open()

    run(main())


def test_a_stream_without_async_with_has_one_life(tmp_path: Path) -> None:
    async def main() -> None:
        async with Site(tmp_path) as site, client_of(site) as mq:
            await site.create("orders")
            stream = mq.consume("orders", group="g", idle_timeout_s=1)
            assert [one async for one in stream] == []
            with pytest.raises(ClientStateError, match="ended with their loop; call consume again"):
                _ = [one async for one in stream]

    run(main())


def test_two_clients_of_one_program_do_not_meet(tmp_path: Path) -> None:
    async def main() -> None:
        async with Site(tmp_path) as site:
            await site.create("orders", 2)
            table = SessionTable(nonce=1, around=site.surroundings())
            settings = site.client_settings()
            async with (
                connect(settings=settings, sessions=table) as one,
                connect(settings=settings, sessions=table) as two,
                one.consume("orders", group="g") as first,
                two.consume("orders", group="g") as second,
            ):
                await pass_time(30)
                assert len(await site.members("g")) == 2
                mine, other = first.consumer.queues, second.consumer.queues
                assert [q.topic for q in sorted(mine | other)].count("orders") == 2
                assert not {q for q in mine & other if q.topic == "orders"}

    run(main())


def test_settings_and_their_short_forms_exclude_each_other() -> None:
    with pytest.raises(InvalidMessageError, match="not both"):
        connect("127.0.0.1:9876", settings=ClientSettings())
