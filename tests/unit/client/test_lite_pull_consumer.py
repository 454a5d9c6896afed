"""A lite pull consumer: subscribe or assign, poll, seek, pause, commit."""

import asyncio
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from unit.broker.one_broker import pass_time
from unit.client.consuming import FIRST, Site, until

from downrange.client.consumer_settings import LitePullSettings, MessageModel
from downrange.client.errors import ClientStateError, RocketMQError
from downrange.client.lite_pull_consumer import LitePullConsumer
from downrange.client.session_table import SessionTable
from downrange.model.topics import MessageQueue
from downrange.runtime.blocking import InLine
from downrange.testing.virtual_time import run

Q0, Q1 = MessageQueue("orders", "b1", 0), MessageQueue("orders", "b1", 1)


def _consumer(site: Site, name: str = "1", **changes: object) -> LitePullConsumer:
    settings = LitePullSettings(**{"consume_from_where": FIRST, **changes})  # type: ignore[arg-type]
    return LitePullConsumer(
        "g",
        client=replace(site.client_settings(), instance_name=name),
        settings=settings,
        sessions=SessionTable(nonce=1, around=site.surroundings()),
        blocking=InLine(),
    )


async def _poll_all(consumer: LitePullConsumer, timeout_s: float = 2.0) -> list[bytes]:
    bodies: list[bytes] = []
    while messages := await consumer.poll(timeout_s):
        bodies += [message.body for message in messages]
    return bodies


def test_a_subscriber_polls_everything_and_commits_by_itself(tmp_path: Path) -> None:
    async def main() -> None:
        async with Site(tmp_path) as site:
            await site.create("orders", 2)
            sent = await site.send_many("orders", 50, queues=2)
            consumer = _consumer(site)
            consumer.subscribe("orders")
            async with consumer:
                assert sorted(await _poll_all(consumer)) == sorted(sent)
                assert consumer.assignment == {Q0, Q1}
                await pass_time(6)
                assert await consumer.poll(0) == []  # commits what was polled before
                assert await consumer.committed(Q0) == 25
                await site.send("orders", b"more")
                assert await _poll_all(consumer) == [b"more"]
            again = _consumer(site)
            again.subscribe("orders")
            async with again:
                assert await _poll_all(again) == []

    run(main())


def test_batches_are_as_large_as_a_pull(tmp_path: Path) -> None:
    async def main() -> None:
        async with Site(tmp_path) as site:
            await site.create("orders")
            await site.send_many("orders", 25)
            consumer = _consumer(site)
            consumer.subscribe("orders")
            async with consumer:
                sizes = [len(await consumer.poll()) for _ in range(3)]
                assert sizes == [10, 10, 5]

    run(main())


def test_tags_choose(tmp_path: Path) -> None:
    async def main() -> None:
        async with Site(tmp_path) as site:
            await site.create("orders", 2)
            for tag in ("a", "b", "a"):
                await site.send("orders", tag.encode(), properties=f"TAGS\x01{tag}\x02")
            consumer = _consumer(site)
            consumer.subscribe("orders", "a")
            async with consumer:
                assert await _poll_all(consumer) == [b"a", b"a"]
            other = _consumer(site, "2")
            await other.assign([Q0], tags="b")
            async with other:
                await other.seek_to_begin(Q0)
                assert await _poll_all(other) == [b"b"]

    run(main())


def test_members_share_and_give_queues_back(tmp_path: Path) -> None:
    async def main() -> None:
        async with Site(tmp_path) as site:
            await site.create("orders", 2)
            first, second = _consumer(site, "1"), _consumer(site, "2")
            changes: list[int] = []
            first.on_queues_changed = lambda _topic, _all, mine: changes.append(len(mine))
            first.subscribe("orders")
            second.subscribe("orders")
            await first.start()
            await until(lambda: first.assignment == {Q0, Q1}, 2)
            await second.start()
            await until(lambda: second.assignment == {Q1}, 2)
            assert first.assignment == {Q0}
            assert changes[-2:] == [2, 1]
            await site.send_many("orders", 4, queues=2)
            assert await _poll_all(first) == [b"0", b"2"]
            assert await _poll_all(second) == [b"1", b"3"]
            await second.shutdown()
            await until(lambda: first.assignment == {Q0, Q1}, 1)
            await first.shutdown()

    run(main())


def test_assigned_queues_are_fetched_whatever_the_group_does(tmp_path: Path) -> None:
    async def main() -> None:
        async with Site(tmp_path) as site:
            await site.create("orders", 2)
            await site.send_many("orders", 10, queues=2)
            consumer = _consumer(site)
            await consumer.assign([Q1])
            async with consumer:
                assert await _poll_all(consumer) == [b"1", b"3", b"5", b"7", b"9"]
                await consumer.assign([Q0])
                assert consumer.assignment == {Q0}
                assert await _poll_all(consumer) == [b"0", b"2", b"4", b"6", b"8"]
                with pytest.raises(ClientStateError, match="another consumer"):
                    consumer.subscribe("orders")
            subscriber = _consumer(site)
            subscriber.subscribe("orders")
            with pytest.raises(ClientStateError, match="another consumer"):
                await subscriber.assign([Q0])

    run(main())


def test_seeking_forgets_what_was_fetched(tmp_path: Path) -> None:
    async def main() -> None:
        async with Site(tmp_path) as site:
            await site.create("orders", 2)
            await site.send_many("orders", 12)
            await pass_time(30)
            later_ms = site.clock.wall_ms()
            await site.send_many("orders", 4, first=12)
            consumer = _consumer(site)
            consumer.subscribe("orders")
            async with consumer:
                await until(lambda: consumer._waiting == 16, 2)
                for seek, first in (
                    (consumer.seek(Q0, 7), 7),
                    (consumer.seek_to_begin(Q0), 0),
                    (consumer.seek_to_time(Q0, later_ms), 12),
                    (consumer.seek_to_end(Q0), 16),
                ):
                    await seek
                    assert [int(body) for body in await _poll_all(consumer)] == [*range(first, 16)]
                with pytest.raises(RocketMQError, match="it has 0 to 16"):
                    await consumer.seek(Q0, 17)
                with pytest.raises(RocketMQError, match="not assigned"):
                    await consumer.seek(MessageQueue("orders", "b1", 9), 0)
                await consumer.seek(Q0, 3)
                await consumer.commit()
                assert await consumer.committed(Q0) == 3
                await site.send("orders", b"16")
                assert (await _poll_all(consumer))[0] == b"3"

    run(main())


def test_a_paused_queue_is_not_fetched(tmp_path: Path) -> None:
    async def main() -> None:
        async with Site(tmp_path) as site:
            await site.create("orders", 2)
            consumer = _consumer(site)
            consumer.subscribe("orders")
            async with consumer:
                await until(lambda: consumer.assignment == {Q0, Q1}, 2)
                consumer.pause([Q0])
                await pass_time(21)  # the pull that the broker holds may still bring something
                await site.send_many("orders", 4, queues=2)
                assert await _poll_all(consumer) == [b"1", b"3"]
                consumer.resume([Q0])
                assert await _poll_all(consumer) == [b"0", b"2"]

    run(main())


def test_without_auto_commit_only_a_commit_moves_the_offset(tmp_path: Path) -> None:
    async def main() -> None:
        async with Site(tmp_path) as site:
            await site.create("orders")
            await site.send_many("orders", 20)
            for expected, commit in ((0, False), (0, True), (10, True)):
                consumer = _consumer(site, auto_commit=False)
                consumer.subscribe("orders")
                async with consumer:
                    messages = await consumer.poll()
                    assert messages[0].queue_offset == expected
                    await pass_time(20)
                    if commit:
                        await consumer.commit()
            consumer = _consumer(site, auto_commit=False)
            consumer.subscribe("orders")
            async with consumer:
                assert await consumer.poll() == []
                await consumer.commit({Q0: 15})
                assert await consumer.committed(Q0) == 15
            again = _consumer(site)
            again.subscribe("orders")
            async with again:
                assert [int(body) for body in await _poll_all(again)] == [15, 16, 17, 18, 19]

    run(main())


def test_a_program_that_does_not_poll_holds_the_fetching_back(tmp_path: Path) -> None:
    async def main() -> None:
        async with Site(tmp_path) as site:
            await site.create("orders")
            await site.send_many("orders", 200)
            consumer = _consumer(site, pull_threshold_for_queue=50)
            consumer.subscribe("orders")
            async with consumer:
                await pass_time(20)
                assert 50 < consumer._waiting <= 60
                assert len(await _poll_all(consumer)) == 200
            tight = _consumer(site, pull_threshold_for_all=30)
            await tight.assign([Q0])
            async with tight:
                await tight.seek_to_begin(Q0)
                await pass_time(20)
                assert 30 < tight._waiting <= 40

    run(main())


def test_polling_waits_as_long_as_it_was_told(tmp_path: Path) -> None:
    async def main() -> None:
        async with Site(tmp_path) as site:
            await site.create("orders")
            consumer = _consumer(site)
            consumer.subscribe("orders")
            with pytest.raises(ClientStateError, match="start it first"):
                await consumer.poll()
            async with consumer:
                await pass_time(2)
                clock: Callable[[], float] = site.clock.monotonic_s
                for timeout_s, waited_s in ((None, 5.0), (0.5, 0.5), (0, 0)):
                    started_s = clock()
                    assert await consumer.poll(timeout_s) == []
                    assert clock() - started_s == pytest.approx(waited_s)
                with pytest.raises(RocketMQError, match="cannot wait"):
                    await consumer.poll(-1)
                both = asyncio.gather(consumer.poll(5), consumer.poll(5))
                await pass_time(1)
                await site.send("orders", b"x")
                assert sorted(map(len, await both)) == [0, 1]

    run(main())


def test_a_broken_connection_and_a_wrong_offset_are_overcome(tmp_path: Path) -> None:
    async def main() -> None:
        async with Site(tmp_path) as site:
            await site.create("orders")
            await site.send_many("orders", 3)
            consumer = _consumer(site)
            consumer.subscribe("orders")
            async with consumer:
                assert len(await _poll_all(consumer)) == 3
                site.network.cut(site.broker_port("b1"))
                await pass_time(0)
                await site.send("orders", b"after")
                assert [message.body for message in await consumer.poll(2)] == [b"after"]
                consumer._assigned[Q0].offset = 1_000
                consumer._assigned[Q0].stop()
                consumer._run_fetching(consumer._assigned[Q0])
                await pass_time(1)
                await site.send("orders", b"again")
                assert b"again" in await _poll_all(consumer, 8)

    run(main())


def test_broadcasting_members_get_everything_each(tmp_path: Path) -> None:
    async def main() -> None:
        async with Site(tmp_path) as site:
            await site.create("orders", 2)
            sent = await site.send_many("orders", 6, queues=2)
            folder = str(tmp_path / "offsets")
            for _ in range(2):
                for name in "12":
                    consumer = _consumer(
                        site,
                        name,
                        message_model=MessageModel.BROADCASTING,
                        offsets_folder=folder,
                    )
                    consumer.subscribe("orders")
                    async with consumer:
                        assert sorted(await _poll_all(consumer)) == sorted(sent)
                sent = []

    run(main())


def test_a_program_that_assigns_hears_of_new_queues(tmp_path: Path) -> None:
    heard: list[tuple[str, frozenset[MessageQueue]]] = []

    def listener(topic: str, queues: frozenset[MessageQueue]) -> None:
        heard.append((topic, queues))
        raise RuntimeError("a listener may fail")

    async def main() -> None:
        async with Site(tmp_path) as site:
            await site.create("orders")
            await site.create("bills")
            consumer = _consumer(site, topic_check_interval_s=5.0)
            consumer.watch_queues("orders", listener)
            async with consumer:
                consumer.watch_queues("bills", listener)
                await pass_time(11)
                assert heard == []
                await site.create("orders", 2)
                await pass_time(5)
                await site.create("bills", 2)
                await pass_time(11)

    run(main())
    assert heard == [
        ("orders", frozenset({Q0, Q1})),
        ("bills", frozenset({MessageQueue("bills", "b1", 0), MessageQueue("bills", "b1", 1)})),
    ]
