"""Our client and Apache's Java client on one broker: what one sends and fails, the other reads.

With DOWNRANGE_ORACLE=1 (`make oracle`) the broker is Apache's.
"""

import asyncio
import hashlib
import json
from collections import defaultdict
from collections.abc import Sequence

import pytest
from interop import apache
from interop.client_cluster import ClientCluster
from interop.client_facts import EXPECTED
from interop.releases import SCENARIOS_5_5

from downrange.client.consumer_settings import PushConsumerSettings
from downrange.client.errors import NoRouteError
from downrange.client.listeners import Batch, ConcurrentContext, ConsumeStatus, OrderlyContext
from downrange.client.message import Message, ReceivedMessage
from downrange.client.producer import Producer
from downrange.client.push_consumer import PushConsumer
from downrange.client.settings import ClientSettings
from downrange.client.start_offset import ConsumeFromWhere
from downrange.client.transaction_producer import TransactionProducer, TransactionState
from downrange.client.wakeup import pause
from downrange.model.topics import MessageQueue

pytestmark = pytest.mark.interop

PROGRAM_SECONDS_MAX = 240.0
JAVA_OPTIONS = ("-Xmx256m", "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC")
WAIT_S_MAX = 60.0
POLL_S = 0.05
MORE_S = 1.0  # for what must not come
KEYS = 4
COUNT = 40


@pytest.fixture
def cluster(servers: ClientCluster) -> ClientCluster:
    return servers


def client(cluster: ClientCluster) -> ClientSettings:
    return ClientSettings(
        name_servers=cluster.name_server, client_ip="127.0.0.1", poll_name_server_interval_s=1.0
    )


def run_java(cluster: ClientCluster, scenario: str) -> str:
    """Let Java clients play a scenario; the prefix of its topic and groups."""
    prefix = f"java-{scenario}"
    assert facts_of_java(cluster, scenario, prefix) == EXPECTED[scenario]
    return prefix


def facts_of_java(cluster: ClientCluster, scenario: str, prefix: str) -> dict[str, str]:
    """What Java clients saw in a scenario."""
    lines = apache.run_program(
        "ClientScenarios",
        {"scenario": scenario, "nameServer": cluster.name_server, "prefix": prefix},
        cluster.folder / prefix,
        seconds_max=PROGRAM_SECONDS_MAX,
        release=SCENARIOS_5_5,
        java_options=JAVA_OPTIONS,
    )
    facts: dict[str, str] = json.loads(lines[-1])["facts"]
    return facts


def read_by_java(cluster: ClientCluster, *topics: str) -> list[dict[str, object]]:
    """The messages of topics as the Java client reads them, queue by queue."""
    lines = apache.run_program(
        "Dump",
        {"nameServer": cluster.name_server, "topics": ",".join(topics), "samples": 1},
        cluster.folder / f"dump-{topics[0].strip('%')}",
        seconds_max=PROGRAM_SECONDS_MAX,
        java_options=JAVA_OPTIONS,
    )
    return [fact for line in lines if (fact := json.loads(line))["kind"] == "message"]


def digest(body: bytes) -> str:
    return hashlib.sha1(body, usedforsecurity=False).hexdigest()


async def consume(
    cluster: ClientCluster, group: str, topic: str, count: int, *, in_order: bool = False
) -> list[ReceivedMessage]:
    """All messages of a topic as our push consumer gives them."""
    found: list[ReceivedMessage] = []

    async def listen(batch: Batch, _context: ConcurrentContext) -> None:
        found.extend(batch)

    async def listen_in_order(batch: Batch, _context: OrderlyContext) -> None:
        found.extend(batch)

    settings = PushConsumerSettings(consume_from_where=ConsumeFromWhere.FIRST_OFFSET)
    consumer = PushConsumer(group, client=client(cluster), settings=settings)
    consumer.subscribe(topic)
    if in_order:
        consumer.listen_in_order(listen_in_order)
    else:
        consumer.listen(listen)
    async with consumer, asyncio.timeout(WAIT_S_MAX):
        while len(found) < count:
            await pause(POLL_S)
        await pause(MORE_S)
    return found


def texts(messages: list[ReceivedMessage]) -> list[str]:
    return [message.body.decode() for message in messages]


def test_python_consumes_in_order_what_java_sent_in_order(cluster: ClientCluster) -> None:
    prefix = run_java(cluster, "orderly")
    # The topic came into being by one more message.
    found = asyncio.run(
        consume(cluster, "python-orderly", f"{prefix}-topic", COUNT + 1, in_order=True)
    )
    by_key: defaultdict[str, list[str]] = defaultdict(list)
    for text in texts(found):
        if text != "first":
            key, number = text.split("/")
            by_key[f"key {key}"].append(number)
    assert {key: " ".join(numbers) for key, numbers in by_key.items()} == EXPECTED["orderly"]


def test_python_sees_of_javas_transactions_what_was_committed(cluster: ClientCluster) -> None:
    prefix = run_java(cluster, "transaction")
    wanted = EXPECTED["transaction"]["consumed"].split()
    found = asyncio.run(consume(cluster, "python-transactions", f"{prefix}-topic", len(wanted) + 1))
    assert set(texts(found)) == {*wanted, "first"}


def test_python_reads_the_dead_letter_of_a_java_consumer(cluster: ClientCluster) -> None:
    prefix = run_java(cluster, "retry-dlq")
    dead = f"%DLQ%{prefix}-consumer"
    (letter,) = asyncio.run(consume(cluster, "python-undertaker", dead, 1))
    assert letter.body == b"bad"
    assert letter.properties["RETRY_TOPIC"] == f"{prefix}-topic"
    assert str(letter.reconsume_times) == EXPECTED["retry-dlq"]["deadTimes"]


class Verdicts:
    """Commits or rolls back by the body; "asked" ones when the broker asks."""

    def execute(self, message: Message, _id: str, _argument: object) -> TransactionState:
        return TransactionState.UNKNOW if message.body.startswith(b"asked") else _verdict(message)

    def check(self, message: ReceivedMessage) -> TransactionState:
        return _verdict(message)


def _verdict(message: Message | ReceivedMessage) -> TransactionState:
    if message.body.endswith(b"commit"):
        return TransactionState.COMMIT_MESSAGE
    return TransactionState.ROLLBACK_MESSAGE


def test_java_reads_what_python_sent_in_order_committed_and_gave_up(
    cluster: ClientCluster,
) -> None:
    ordered, paid, failing = "python-ordered", "python-paid", "python-failing"
    group = "python-gives-up"

    async def main() -> None:
        async with Producer("python-senders", client=client(cluster)) as producer:
            await producer.send(Message(failing, b"bad", keys="k"))
            for number in range(COUNT):
                message = Message(ordered, b"%d" % number, keys=str(number % KEYS))
                await producer.send(message, selector=_by_key)
        async with TransactionProducer("python-pays", Verdicts(), client=client(cluster)) as payer:
            for body in (b"commit", b"rollback", b"asked commit", b"asked rollback"):
                await payer.send_in_transaction(Message(paid, body))
            await consume(cluster, "python-waits", paid, 2)
        await _give_up(cluster, group, failing)

    asyncio.run(main())
    messages = read_by_java(cluster, ordered, paid, f"%DLQ%{group}")
    bodies: defaultdict[tuple[object, object], list[object]] = defaultdict(list)
    for message in messages:
        bodies[message["topic"], message["queueId"]].append(message["bodySha1"])
    for key in range(KEYS):
        assert bodies[ordered, key] == [digest(b"%d" % one) for one in range(key, COUNT, KEYS)]
    committed = {one["bodySha1"] for one in messages if one["topic"] == paid}
    assert committed == {digest(b"commit"), digest(b"asked commit")}
    (letter,) = [one for one in messages if one["topic"] == f"%DLQ%{group}"]
    assert letter["bodySha1"] == digest(b"bad")
    properties = letter["properties"]
    assert isinstance(properties, dict)
    assert (properties["RETRY_TOPIC"], properties["KEYS"]) == (failing, "k")


def test_java_consumes_in_order_what_python_sent_in_order(cluster: ClientCluster) -> None:
    prefix = "python-in-order"

    async def main() -> None:
        async with Producer("python-in-order", client=client(cluster)) as producer:
            await _until_routed(producer, f"{prefix}-topic")
            for number in range(COUNT):
                key = number % KEYS
                body = f"{key}/{10 + number}".encode()
                message = Message(f"{prefix}-topic", body, tag="tag", keys=str(key))
                await producer.send(message, selector=_by_key)

    asyncio.run(main())
    assert facts_of_java(cluster, "read-in-order", prefix) == EXPECTED["orderly"]


async def _until_routed(producer: Producer, topic: str) -> None:
    """Apache's broker says that it is up a little before the name server knows it."""
    async with asyncio.timeout(WAIT_S_MAX):
        while True:
            try:
                await producer.queues(topic)
            except NoRouteError:
                await pause(POLL_S)
            else:
                return


def _by_key(queues: Sequence[MessageQueue], message: Message) -> MessageQueue:
    return sorted(queues)[int(message.keys[0])]


async def _give_up(cluster: ClientCluster, group: str, topic: str) -> None:
    """Fail a message until it is a dead letter."""
    tries: list[int] = []

    async def fail(batch: Batch, context: ConcurrentContext) -> ConsumeStatus:
        tries.extend(message.reconsume_times for message in batch)
        context.delay_level = 1
        return ConsumeStatus.RECONSUME_LATER

    settings = PushConsumerSettings(
        consume_from_where=ConsumeFromWhere.FIRST_OFFSET, max_reconsume_times=1
    )
    consumer = PushConsumer(group, client=client(cluster), settings=settings)
    consumer.subscribe(topic)
    consumer.listen(fail)
    async with consumer:
        async with asyncio.timeout(WAIT_S_MAX):
            while len(tries) < 2:
                await pause(POLL_S)
        await consume(cluster, f"{group}-looks", f"%DLQ%{group}", 1)
    assert tries == [0, 1]
