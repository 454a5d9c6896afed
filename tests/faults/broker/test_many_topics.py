"""A thousand topics with eight queues each: the start takes seconds, a message no longer."""

import asyncio
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType

from faults.broker.cluster import Cluster
from faults.broker.peers import Peer, RecordProperty, own_memory_kib, worked_seconds
from faults.broker.routes import wait_for_route
from faults.stores import trial
from unit.broker.one_broker import ADDRESS, OneBroker, records, small_files

from downrange.broker.settings import BrokerSettings
from downrange.model.topics import TopicConfig
from downrange.protocol.bodies.groups import TopicConfigList
from downrange.protocol.bodies.json_body import encode_body
from downrange.protocol.request_codes import RequestCode
from downrange.testing.virtual_time import run

TOPICS = 1_000
QUEUES = 8
WINDOW = 64
WORKED_SECONDS_MAX = 10.0  # of processor time, in a start
RATE_MESSAGES = 2_000
STEPS_MORE_MAX = 1.1  # of a message beside many topics, to one beside few; a scan takes thousands
Tracer = Callable[[FrameType, str, object], "Tracer | None"]


class Steps:
    """Counts what the interpreter executes: the same every time, on every machine."""

    def __init__(self) -> None:
        self.count = 0

    def trace(self, frame: FrameType, event: str, _argument: object) -> "Tracer":
        """Called by the interpreter for each step."""
        frame.f_trace_opcodes = True
        frame.f_trace_lines = False
        self.count += event == "opcode"
        return self.trace

    @contextmanager
    def counted(self) -> Iterator[None]:
        """Count what happens in the block."""
        before = sys.gettrace()
        sys.settrace(self.trace)
        try:
            yield
        finally:
            sys.settrace(before)


def create_all() -> tuple[int, None, bytes]:
    """Code, header and body of the request that creates all topics."""
    configs = tuple(
        TopicConfig(topic_name=f"topic-{number}", read_queue_nums=QUEUES, write_queue_nums=QUEUES)
        for number in range(TOPICS)
    )
    body = encode_body(TopicConfigList(topic_config_list=configs))
    return RequestCode.UPDATE_AND_CREATE_TOPIC_LIST, None, body


async def send_and_pull(one: OneBroker, offset: int) -> None:
    assert (await one.send("measured", b"body")).code == 0
    assert len(records(await one.pull("measured", offset))) == 1


async def steps_of_a_message(one: OneBroker, offset: int) -> int:
    """How many steps it takes to send a message and to pull it again."""
    steps = Steps()
    loop = asyncio.get_running_loop()

    async def traced() -> None:
        await send_and_pull(one, offset)

    # The callbacks of the loop are frames of their own, all below this one.
    with steps.counted():
        await loop.create_task(traced())
    return steps.count


def test_a_message_takes_as_many_steps_beside_a_thousand_topics(
    scratch: Path, record_property: RecordProperty
) -> None:
    async def main() -> str:
        settings = BrokerSettings(address="127.0.0.1", broker_name="b1")
        files = small_files(scratch, queue_bytes=400)
        async with OneBroker(scratch, settings, files) as one:
            await send_and_pull(one, 0)
            await send_and_pull(one, 1)
            few = await steps_of_a_message(one, 2)
            answer = await one.client.call(ADDRESS, *create_all(), timeout_s=60)
            assert answer.code == 0, answer
            for number in range(TOPICS):
                assert (await one.send(f"topic-{number}", queue_id=number % QUEUES)).code == 0
            await send_and_pull(one, 3)
            many = await steps_of_a_message(one, 4)
            assert few < many * STEPS_MORE_MAX
            assert many < few * STEPS_MORE_MAX
            return f"steps beside 1 topic={few}, beside {TOPICS}={many}"

    with trial("test_a_message_takes_as_many_steps_beside_a_thousand_topics"):
        record_property("seen", run(main()))


async def rate(peer: Peer, topics: int, queues: int, count: int) -> float:
    """Messages a second, sent to so many topics in turn, several at a time."""
    waiting: set[asyncio.Task[None]] = set()

    async def send(number: int) -> None:
        topic, queue_id = f"topic-{number % topics}", number // topics % queues
        answer = await peer.send(topic, b"body", queue_id=queue_id)
        assert answer.code == 0, answer

    start_s = time.perf_counter()
    for number in range(count):
        waiting.add(asyncio.ensure_future(send(number)))
        if len(waiting) >= WINDOW:
            done, waiting = await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
            for task in done:
                task.result()
    await asyncio.gather(*waiting)
    return count / (time.perf_counter() - start_s)


async def a_thousand_topics(cluster: Cluster) -> str:
    cluster.start_names()
    broker = await asyncio.to_thread(cluster.start_broker)
    peer = Peer(broker.address)
    created_s = time.perf_counter()
    assert (await peer.call(*create_all())).code == 0
    created_s = time.perf_counter() - created_s
    last = f"topic-{TOPICS - 1}"
    await wait_for_route(cluster.names_address, last, [broker.address])
    await rate(peer, TOPICS, QUEUES, TOPICS * QUEUES)  # so that every queue has its file
    one = await rate(peer, 1, QUEUES, RATE_MESSAGES)
    all_of_them = await rate(peer, TOPICS, QUEUES, RATE_MESSAGES)
    peer.close()
    broker.stop()
    clean = await started_again(cluster, last)
    cluster.broker.kill()
    killed = await started_again(cluster, last)
    memory_kib = own_memory_kib(cluster.broker.process.pid)
    cluster.broker.stop()
    cluster.check_logs()
    return (
        f"created_in={created_s:.2f}s started_in={clean} after_a_kill={killed} "
        f"memory={memory_kib}KiB rate_1_topic={one:.0f}/s rate_{TOPICS}={all_of_them:.0f}/s "
        f"ratio={all_of_them / one:.2f}"
    )


async def started_again(cluster: Cluster, topic: str) -> str:
    """How many seconds it takes from the start of the process to an answer."""
    start_s = time.perf_counter()
    broker = await asyncio.to_thread(cluster.start_broker)
    peer = Peer(broker.address)
    assert (await peer.pull(topic, 0)).code == 0
    peer.close()
    took_s = time.perf_counter() - start_s
    worked_s = worked_seconds(broker.process.pid)
    assert worked_s < WORKED_SECONDS_MAX
    return f"{took_s:.2f}s({worked_s:.2f}s of work)"


def test_a_broker_with_a_thousand_topics_starts_in_seconds(
    scratch: Path, record_property: RecordProperty
) -> None:
    name = "test_a_broker_with_a_thousand_topics_starts_in_seconds"
    with trial(name), Cluster(scratch) as cluster:
        record_property("seen", asyncio.run(a_thousand_topics(cluster)))
