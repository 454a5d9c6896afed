"""Our producer against our servers and Apache's; what it sent is read by Apache's Java client."""

import asyncio
import hashlib
import json
import time
from collections.abc import Iterator
from dataclasses import replace

import pytest
from interop import apache
from interop.client_cluster import BROKER_NAME, ClientCluster, running_cluster

from downrange.client.errors import BrokerRefusal, NoNameServerError
from downrange.client.message import Message, ReceivedMessage, SendReceipt, SendStatus
from downrange.client.producer import Producer
from downrange.client.record_reader import read_records
from downrange.client.request_reply import make_reply
from downrange.client.settings import ClientSettings, ProducerSettings
from downrange.client.tls import TlsSettings
from downrange.client.transaction_producer import TransactionProducer, TransactionState
from downrange.model.topics import MessageQueue
from downrange.protocol.headers.pull import PullRequest
from downrange.protocol.sys_flag import CompressionType

pytestmark = pytest.mark.interop

DUMP_SECONDS_MAX = 120.0
WAIT_SECONDS_MAX = 60.0
POLL_SECONDS = 0.2


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ClientCluster]:
    with running_cluster(tmp_path_factory.mktemp("python-producer")) as running:
        yield running


def client(cluster: ClientCluster) -> ClientSettings:
    return ClientSettings(name_servers=cluster.name_server, client_ip="127.0.0.1")


def seen_by_java(cluster: ClientCluster, topic: str) -> list[dict[str, object]]:
    """Every message of a topic, as the Java client reads it."""
    lines = apache.run_program(
        "Dump",
        {"nameServer": cluster.name_server, "topics": topic, "samples": 1},
        cluster.folder / f"dump-{topic}",
        seconds_max=DUMP_SECONDS_MAX,
    )
    facts = [json.loads(line) for line in lines]
    return [fact for fact in facts if fact["kind"] == "message"]


def sha1(body: bytes) -> str:
    return hashlib.sha1(body, usedforsecurity=False).hexdigest()


def by_key(messages: list[dict[str, object]]) -> dict[str, dict[str, object]]:
    found = {}
    for message in messages:
        properties = message["properties"]
        assert isinstance(properties, dict)
        found[properties["KEYS"]] = message
    return found


async def first_message(producer: Producer, queue: MessageQueue) -> ReceivedMessage:
    """The first message of a queue, pulled as soon as it is there."""
    session = producer._session
    assert session is not None
    address = session.routes.master_address(BROKER_NAME)
    assert address is not None
    header = PullRequest(
        consumer_group="looks",
        topic=queue.topic,
        queue_id=queue.queue_id,
        queue_offset=0,
        max_msg_nums=1,
        sys_flag=6,
        commit_offset=0,
        suspend_timeout_millis=15_000,
        subscription="*",
        sub_version=0,
    )
    answer = await session.calls.pull(address, header, timeout_s=30)
    return read_records(answer.records, broker_name=BROKER_NAME)[0]


def test_java_reads_what_python_sent(cluster: ClientCluster) -> None:
    topic = "python-sends"
    receipts: dict[str, SendReceipt] = {}
    texts = {"plain": b"hello", "large": b"large " * 4_000, "ümläut": "grüße".encode()}

    async def main() -> None:
        async with Producer("python", client=client(cluster)) as producer:
            for key, body in texts.items():
                message = Message(
                    topic, body, tag=f"tag-{key}", keys=key, properties={"own": key}, flag=7
                )
                receipts[key] = await producer.send(message)
            await producer.send_one_way(Message(topic, b"one way", keys="one-way"))
            done = asyncio.get_running_loop().create_future()
            await producer.send_async(Message(topic, b"callback", keys="callback"), done.set_result)
            result = await done
            assert isinstance(result, SendReceipt)
            receipts["callback"] = result
            batch = [Message(topic, b"batch %d" % i, keys=f"batch-{i}") for i in range(3)]
            receipts["batch"] = await producer.send_batch(batch)
            await asyncio.wait_for(_until_sent(producer, topic), WAIT_SECONDS_MAX)

    asyncio.run(main())
    assert {receipt.status for receipt in receipts.values()} == {SendStatus.SEND_OK}
    found = by_key(seen_by_java(cluster, topic))
    assert found.keys() == {*texts, "one-way", "callback", "batch-0", "batch-1", "batch-2"}
    for key, body in texts.items():
        message, receipt = found[key], receipts[key]
        properties = message["properties"]
        assert isinstance(properties, dict)
        assert message["bodySha1"] == sha1(body)
        assert message["flag"] == 7
        assert (properties["TAGS"], properties["own"]) == (f"tag-{key}", key)
        assert properties["UNIQ_KEY"] == receipt.message_id
        assert message["offsetMsgId"] == receipt.offset_message_id
        assert message["queueOffset"] == receipt.queue_offset
    ids = [found[f"batch-{i}"]["offsetMsgId"] for i in range(3)]
    assert receipts["batch"].offset_message_id.split(",") == ids


async def _until_sent(producer: Producer, topic: str) -> None:
    """Until the one-way message, which nobody acknowledges, is stored like the seven others."""
    session = producer._session
    assert session is not None
    address = session.routes.master_address(BROKER_NAME)
    assert address is not None
    loop = asyncio.get_running_loop()
    while True:
        queues = await producer.queues(topic)
        if sum([await session.calls.max_offset(address, queue) for queue in queues]) == 8:
            return
        future = loop.create_future()
        loop.call_later(POLL_SECONDS, future.set_result, None)
        await future


@pytest.mark.parametrize("compression", CompressionType)
def test_java_unpacks_what_python_packed(
    cluster: ClientCluster, compression: CompressionType
) -> None:
    topic = f"python-packs-{compression.name}"
    body = b"packed " * 10_000

    async def main() -> None:
        settings = ProducerSettings(compress_type=compression)
        async with Producer("python", client=client(cluster), settings=settings) as producer:
            await producer.send(Message(topic, body, keys="k"))

    asyncio.run(main())
    (message,) = seen_by_java(cluster, topic)
    assert message["bodySha1"] == sha1(body)
    size = message["storeSize"]
    assert isinstance(size, int)
    assert size < 5_000


def test_a_delay_level_is_kept(cluster: ClientCluster) -> None:
    topic = "python-delays"

    async def main() -> None:
        async with Producer("python", client=client(cluster)) as producer:
            receipt = await producer.send(Message(topic, b"now", keys="now"))
            queue = MessageQueue(topic, BROKER_NAME, 0 if receipt.queue.queue_id else 1)
            started_s = time.monotonic()
            await producer.send(Message(topic, b"x", keys="later", delay_level=2), queue=queue)
            message = await first_message(producer, queue)
            assert message.body == b"x"
            assert 4 <= time.monotonic() - started_s <= WAIT_SECONDS_MAX

    asyncio.run(main())
    assert by_key(seen_by_java(cluster, topic)).keys() == {"now", "later"}


def test_transactions_end_as_the_listener_says(cluster: ClientCluster) -> None:
    topic = "python-transactions"
    checked: list[str] = []

    class Listener:
        def execute(self, message: Message, _id: str, _argument: object) -> TransactionState:
            return {
                "commit": TransactionState.COMMIT_MESSAGE,
                "rollback": TransactionState.ROLLBACK_MESSAGE,
            }.get(message.keys[0], TransactionState.UNKNOW)

        def check(self, message: ReceivedMessage) -> TransactionState:
            checked.append(message.keys[0])
            if message.keys == ["asked-commit"]:
                return TransactionState.COMMIT_MESSAGE
            return TransactionState.ROLLBACK_MESSAGE

    async def main() -> None:
        async with TransactionProducer(
            "python-payers", Listener(), client=client(cluster)
        ) as producer:
            await producer.send(Message(topic, b"plain", keys="plain"))
            for key in ("commit", "rollback", "asked-commit", "asked-rollback"):
                await producer.send_in_transaction(Message(topic, b"half", keys=key))
            loop = asyncio.get_running_loop()
            deadline_s = loop.time() + WAIT_SECONDS_MAX
            while len(set(checked)) < 2 and loop.time() < deadline_s:
                future = loop.create_future()
                loop.call_later(POLL_SECONDS, future.set_result, None)
                await future
            future = loop.create_future()
            loop.call_later(2, future.set_result, None)  # until the last verdict has arrived
            await future

    asyncio.run(main())
    assert set(checked) == {"asked-commit", "asked-rollback"}
    assert by_key(seen_by_java(cluster, topic)).keys() == {"plain", "commit", "asked-commit"}


def test_a_request_gets_its_reply(cluster: ClientCluster) -> None:
    topic = "python-asks"

    async def main() -> None:
        async with (
            Producer("python-askers", client=client(cluster)) as asker,
            Producer("python-answerers", client=client(cluster)) as answerer,
        ):
            queue = MessageQueue(topic, BROKER_NAME, 2)
            await answerer.send(
                Message(topic, b"warm up"), queue=MessageQueue(topic, BROKER_NAME, 0)
            )
            asking = asyncio.ensure_future(
                asker.request(Message(topic, b"question"), timeout_s=30, queue=queue)
            )
            request = await first_message(answerer, queue)
            await answerer.send(make_reply(request, b"answer to " + request.body))
            assert (await asking).body == b"answer to question"

    asyncio.run(main())


def test_a_delayed_message_is_taken_back_where_the_broker_can(cluster: ClientCluster) -> None:
    topic = "python-recalls"

    async def main() -> None:
        async with Producer("python", client=client(cluster)) as producer:
            await producer.send(Message(topic, b"plain", keys="plain"))
            try:
                receipt = await producer.send(Message(topic, b"x", keys="delayed", delay_s=600))
            except BrokerRefusal as refusal:
                pytest.skip(f"the broker has no timer: {refusal}")
            if receipt.recall_handle is None:
                pytest.skip("the broker gives no recall handle")
            assert await producer.recall(topic, receipt.recall_handle) == receipt.message_id

    asyncio.run(main())


def test_tls_where_the_servers_speak_it_and_a_clear_error_where_not(
    cluster: ClientCluster,
) -> None:
    async def main() -> None:
        # The server made its certificate itself.
        encrypted = replace(client(cluster), tls=TlsSettings(verify=False))
        async with Producer("python-tls", client=encrypted) as producer:
            if cluster.of_apache:
                receipt = await producer.send(Message("python-tls", b"secret"), timeout_s=10)
                assert receipt.status is SendStatus.SEND_OK
            else:
                started_s = time.monotonic()
                with pytest.raises(NoNameServerError):
                    await producer.send(Message("python-tls", b"secret"))
                assert time.monotonic() - started_s < 5

    asyncio.run(main())
