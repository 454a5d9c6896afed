"""The blocking client against a cluster in memory that lives in the I/O thread, in real time."""

import asyncio
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import pytest
from unit.client.consuming import Site

from downrange import sync
from downrange.client.consumer_settings import (
    LitePullSettings,
    PullConsumerSettings,
    PushConsumerSettings,
)
from downrange.client.errors import ClientStateError, ClientTimeoutError, InvalidMessageError
from downrange.client.listeners import Batch, ConcurrentContext
from downrange.client.message import Message, ReceivedMessage, SendStatus
from downrange.client.pulling import PullStatus
from downrange.client.session_table import SessionTable
from downrange.client.settings import ClientSettings
from downrange.client.start_offset import ConsumeFromWhere
from downrange.client.transaction_producer import TransactionState
from downrange.sync.io_thread import IoThread, io_thread
from downrange.sync.listener_threads import DaemonThreads

SECONDS_MAX = 30.0


class BlockingSite:
    """The cluster as a blocking program sees it."""

    def __init__(self, root: Path) -> None:
        self.site = Site(root)
        # What is given back comes again at level 3, and time is real here.
        self.site._store_files = replace(self.site._store_files, delay_levels="1s 1s 1s")
        io_thread().call(self.site.__aenter__(), SECONDS_MAX)
        self.sessions = SessionTable(nonce=1, around=self.site.surroundings())
        self.settings: ClientSettings = self.site.client_settings()

    def create(self, topic: str, queues: int = 1) -> None:
        io_thread().call(self.site.create(topic, queues), SECONDS_MAX)

    def connect(self) -> sync.Client:
        return sync.connect(settings=self.settings, sessions=self.sessions)

    def close(self) -> None:
        io_thread().call(self.site.__aexit__(), SECONDS_MAX)


@pytest.fixture
def site(tmp_path: Path) -> Iterator[BlockingSite]:
    blocking = BlockingSite(tmp_path)
    yield blocking
    blocking.close()


def test_the_short_way_sends_and_consumes(site: BlockingSite) -> None:
    site.create("orders")
    with site.connect() as mq:
        receipts = [mq.send("orders", b"%d" % n, tag="new", key="42") for n in range(5)]
        assert {one.status for one in receipts} == {SendStatus.SEND_OK}
        seen: list[ReceivedMessage] = []
        with mq.consume("orders", group="g", start_at="first", idle_timeout_s=10) as stream:
            for message in stream:
                seen.append(message)
                if len(seen) == 5:
                    stream.stop()
        assert [one.message_id for one in seen] == [one.message_id for one in receipts]
        assert seen[0].keys == ["42"]
    with pytest.raises(ClientStateError, match="not connected"):
        mq.send("orders", b"late")


def test_a_loop_that_is_left_by_an_error_gives_its_message_back(site: BlockingSite) -> None:
    site.create("orders")

    def fail() -> None:
        with site.connect() as mq:
            mq.send("orders", b"x")
            for _ in mq.consume("orders", group="g", start_at="first"):
                raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fail()
    with site.connect() as mq:
        for message in mq.consume("orders", group="g"):  # noqa: B007 - looked at below
            break
        assert (message.body, message.reconsume_times) == (b"x", 1)


def test_it_works_under_a_loop_that_runs_in_the_callers_thread(site: BlockingSite) -> None:
    site.create("orders")

    async def notebook() -> str:
        with site.connect() as mq:
            return mq.send("orders", b"from a notebook").message_id

    assert asyncio.run(notebook())


def test_calls_come_from_many_threads(site: BlockingSite) -> None:
    site.create("orders", 4)
    with site.connect() as mq, ThreadPoolExecutor(8) as threads:
        ids = list(threads.map(lambda n: mq.send("orders", b"%d" % n).message_id, range(200)))
    assert len(set(ids)) == 200


def test_a_blocking_listener_holds_up_no_other_call(site: BlockingSite) -> None:
    site.create("orders")
    has_it, go_on = threading.Event(), threading.Event()
    seen: list[str] = []

    def listener(batch: Batch, context: ConcurrentContext) -> None:
        del context
        has_it.set()
        assert go_on.wait(SECONDS_MAX)
        seen.append(threading.current_thread().name)
        assert len(batch) == 1

    consumer = sync.PushConsumer(
        "billing",
        client=site.settings,
        settings=PushConsumerSettings(consume_from_where=ConsumeFromWhere.FIRST_OFFSET),
        sessions=site.sessions,
    )
    consumer.subscribe("orders")
    consumer.listen(listener)
    with sync.Producer("p", client=site.settings, sessions=site.sessions) as producer, consumer:
        producer.send(Message("orders", b"1"))
        assert has_it.wait(SECONDS_MAX)
        producer.send(Message("orders", b"2"))  # answered while the listener blocks
        assert len(producer.queues("orders")) == 1
        go_on.set()
    assert seen
    assert all(name.startswith("consume_billing_") for name in seen)


def test_a_blocking_transaction_listener_has_a_thread(site: BlockingSite) -> None:
    site.create("orders")
    names: list[str] = []

    class Listener:
        def execute(
            self, message: Message, transaction_id: str, argument: object
        ) -> TransactionState:
            del message, transaction_id
            names.append(threading.current_thread().name)
            assert argument == "money"
            return TransactionState.COMMIT_MESSAGE

        def check(self, message: ReceivedMessage) -> TransactionState:
            del message
            return TransactionState.UNKNOW

    with sync.TransactionProducer(
        "bank", Listener(), client=site.settings, sessions=site.sessions
    ) as bank:
        receipt = bank.send_in_transaction(Message("orders", b"pay"), "money")
    assert receipt.state is TransactionState.COMMIT_MESSAGE
    assert names == ["transaction_0"]


def test_pull_consumers_pull_poll_seek_and_commit(site: BlockingSite) -> None:
    site.create("orders")
    client, sessions = site.settings, site.sessions
    with site.connect() as mq:
        for n in range(3):
            mq.send("orders", b"%d" % n)
    settings = PullConsumerSettings(suspend_max_s=0.2, timeout_when_suspended_s=5)
    with sync.PullConsumer("pull", client=client, settings=settings, sessions=sessions) as pull:
        (queue,) = pull.fetch_queues("orders")
        result = pull.pull(queue, 1)
        assert (result.status, [one.body for one in result.messages]) == (
            PullStatus.FOUND,
            [b"1", b"2"],
        )
        assert pull.pull_blocking(queue, result.next_offset).messages == []
        pull.update_consumed_offset(queue, 2)
        pull.persist(queue)
        assert pull.consumed_offset(queue, from_store=True) == 2
        assert (pull.min_offset(queue), pull.max_offset(queue)) == (0, 3)
    lite = sync.LitePullConsumer(
        "lite",
        client=client,
        settings=LitePullSettings(consume_from_where=ConsumeFromWhere.FIRST_OFFSET),
        sessions=sessions,
    )
    with lite:
        lite.assign([queue])
        assert [one.body for one in lite.poll(10)] == [b"0", b"1", b"2"]
        lite.seek(queue, 2)
        assert [one.body for one in lite.poll(10)] == [b"2"]
        lite.commit({queue: 1})
        assert lite.committed(queue) == 1
        assert lite.assignment == {queue}


def test_a_call_that_takes_too_long_is_ended_with_an_error() -> None:
    async def never() -> None:
        await asyncio.get_running_loop().create_future()

    with pytest.raises(ClientTimeoutError, match=r"no end after 0\.1 s"):
        io_thread().call(never(), 0.1)


def test_a_blocking_call_in_the_io_thread_is_refused_instead_of_hanging(site: BlockingSite) -> None:
    mq = site.connect()

    async def wrong() -> None:
        mq.open()

    with pytest.raises(ClientStateError, match="would wait for itself"):
        io_thread().call(wrong(), SECONDS_MAX)


def test_a_wrong_message_is_the_same_error_as_in_asyncio(site: BlockingSite) -> None:
    with site.connect() as mq, pytest.raises(InvalidMessageError, match="body is empty"):
        mq.send("orders", b"")
    with pytest.raises(ClientStateError, match="Producer is not started; call start first"):
        sync.Producer("p", client=site.settings).queues("orders")


def test_a_thread_that_has_ended_says_so() -> None:
    thread = IoThread()
    thread.close()

    async def nothing() -> None:
        return

    with pytest.raises(ClientStateError, match="ended with the interpreter"):
        thread.call(nothing(), 1)


def test_errors_of_listener_threads_arrive_and_threads_are_bounded() -> None:
    threads = DaemonThreads(3, "t")
    together = threading.Barrier(3, timeout=SECONDS_MAX)

    def fail() -> None:
        raise KeyError("x")

    async def main() -> None:
        with pytest.raises(KeyError):
            await threads.run(fail)
        await asyncio.gather(*(threads.run(together.wait) for _ in range(9)))
        assert len(threads._threads) == 3

    io_thread().call(main(), SECONDS_MAX)
    threads.close()
    for thread in threads._threads:
        thread.join(SECONDS_MAX)
        assert not thread.is_alive()
