"""Requests and their replies; messages that are taken back."""

import asyncio
import base64
from pathlib import Path

import pytest
from unit.broker.one_broker import pass_time
from unit.client.producing import producer_of, stored

from downrange.client.errors import (
    BrokerRefusal,
    InvalidMessageError,
    RequestTimeoutError,
    RocketMQError,
)
from downrange.client.message import Message
from downrange.client.request_reply import make_reply
from downrange.testing.cluster import MemoryCluster
from downrange.testing.virtual_time import run


def test_a_reply_finds_its_request(tmp_path: Path) -> None:
    async def main() -> None:
        async with (
            MemoryCluster(tmp_path) as cluster,
            producer_of(cluster, "askers") as asker,
            producer_of(cluster, "answerers") as answerer,
        ):
            await answerer.send(Message("questions", b"warm up"))
            asking = [
                asyncio.ensure_future(
                    asker.request(Message("questions", b"q%d" % number), timeout_s=5)
                )
                for number in range(3)
            ]
            await pass_time(1)
            requests = [m for m in await stored(cluster, "questions") if m.body != b"warm up"]
            assert len(requests) == 3
            for request in reversed(requests):
                receipt = await answerer.send(make_reply(request, b"re " + request.body))
                assert receipt.queue.topic == "DefaultCluster_REPLY_TOPIC"
            replies = [await one for one in asking]
            assert [reply.body for reply in replies] == [b"re q0", b"re q1", b"re q2"]
            assert replies[0].properties["ARRIVE_TIME"]

    run(main())


def test_a_request_without_a_reply_ends_in_time(tmp_path: Path) -> None:
    async def main() -> None:
        async with MemoryCluster(tmp_path) as cluster, producer_of(cluster) as producer:
            loop = asyncio.get_running_loop()
            started_s = loop.time()
            with pytest.raises(RequestTimeoutError, match="does a consumer") as caught:
                await producer.request(Message("questions", b"?"), timeout_s=2)
            assert caught.value.code == 10006
            assert loop.time() - started_s == pytest.approx(2.0, abs=0.01)

    run(main())


def test_a_request_that_cannot_be_sent_says_so(tmp_path: Path) -> None:
    async def main() -> None:
        async with MemoryCluster(tmp_path) as cluster, producer_of(cluster) as producer:
            await producer.send(Message("questions", b"warm up"))
            await cluster.stop_broker("b1")
            with pytest.raises(RocketMQError, match="10911"):
                await producer.request(Message("questions", b"?"), timeout_s=2)

    run(main())


def test_only_requests_can_be_replied_to(tmp_path: Path) -> None:
    async def main() -> None:
        async with MemoryCluster(tmp_path) as cluster:
            async with producer_of(cluster) as producer:
                await producer.send(Message("questions", b"plain"))
            (plain,) = await stored(cluster, "questions")
            with pytest.raises(InvalidMessageError, match="no request") as caught:
                make_reply(plain, b"answer")
            assert caught.value.code == 10007

    run(main())


def test_a_recall_goes_to_the_broker_of_the_handle(tmp_path: Path) -> None:
    async def main() -> None:
        async with MemoryCluster(tmp_path) as cluster, producer_of(cluster) as producer:
            await producer.send(Message("orders", b"x"))
            handle = base64.urlsafe_b64encode(b"v1 orders b1 1700000000000 ID").decode()
            # This broker keeps no timer wheel and says so; one that does takes the message back.
            with pytest.raises(BrokerRefusal):
                await producer.recall("orders", handle)
            for wrong in ("", "%%%", base64.urlsafe_b64encode(b"v2 a b c d").decode()):
                with pytest.raises(InvalidMessageError, match="recall handle"):
                    await producer.recall("orders", wrong)

    run(main())
