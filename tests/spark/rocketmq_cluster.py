"""A name server and a broker as processes, and what tests of Spark need of them."""

import itertools
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Self

from processes import Server, free_broker_port, start_broker, start_name_server

from downrange.client.message import Message
from downrange.client.settings import ClientSettings, ProducerSettings
from downrange.model.names import AUTO_CREATE_TOPIC
from downrange.model.topics import MessageQueue
from downrange.protocol.headers.fields import encode_header
from downrange.protocol.headers.topic import CreateTopicRequest
from downrange.protocol.request_codes import RequestCode
from downrange.spark.cluster import Cluster
from downrange.spark.connecting import Connecting
from downrange.spark.link import Link
from downrange.sync.producers import Producer

BROKER = "broker-a"
SETTINGS = {
    "brokerName": BROKER,
    "enablePropertyFilter": "true",
    "mappedFileSizeCommitLog": str(64 * 1024 * 1024),
    "maxMessageSize": str(4 * 1024 * 1024),
    # A machine under load makes every loop late.
    "waitTimeMillsInSendQueue": "60000",
    "waitTimeMillsInPullQueue": "60000",
    "osPageCacheBusyTimeOutMills": "60000",
}
WAIT_S_MAX = 60.0
_NUMBERS = itertools.count(1)


class RocketMQCluster:
    """Our servers, and a producer that sends where a test says."""

    def __init__(self, folder: Path, settings: Mapping[str, str] | None = None) -> None:
        self._folder = folder
        self._settings = {**SETTINGS, **(settings or {})}
        self.names = self.start_names()
        self._port = free_broker_port()
        self.broker = self.start_broker()
        self.producer = Producer(
            f"spark-tests-{next(_NUMBERS)}",
            client=ClientSettings(name_servers=self.names.address),
            settings=ProducerSettings(compress_over_bytes=1 << 30, send_timeout_s=30.0),
        )
        self.producer.start()

    def start_names(self) -> Server:
        """Start the name server."""
        return start_name_server(self._folder / "names")

    def start_broker(self) -> Server:
        """Start the broker where it was."""
        self.broker = start_broker(
            self._folder / "broker", self.names.address, self._settings, port=self._port
        )
        return self.broker

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.producer.shutdown()
        self.broker.stop()
        self.names.stop()

    @property
    def store(self) -> Path:
        """Where the broker keeps its files."""
        return self._folder / "broker" / "store"

    @property
    def connecting(self) -> Connecting:
        """How the cluster is reached."""
        return Connecting(
            name_servers=(self.names.address,), timeout_s=10.0, retries=20, retry_interval_s=0.1
        )

    def options(self, topic: str, **more: str) -> dict[str, str]:
        """Options that read a topic."""
        return {
            "nameServers": self.names.address,
            "subscribe": topic,
            "fetchRetryIntervalMs": "100",
            "fetchRetries": "3",
            **more,
        }

    def create(self, topic: str, queues: int = 4) -> list[MessageQueue]:
        """Make a topic, or change how many queues it has, and wait until the name server knows."""
        header = CreateTopicRequest(
            topic=topic,
            default_topic=AUTO_CREATE_TOPIC,
            read_queue_nums=queues,
            write_queue_nums=queues,
            perm=6,
            topic_filter_type="SINGLE_TAG",
            order=False,
        )
        link = Link(self.broker.address, timeout_s=10.0)
        answer = link.ask(RequestCode.UPDATE_AND_CREATE_TOPIC, encode_header(header))
        link.close()
        assert answer.code == 0, answer
        with Cluster(self.connecting) as cluster:
            wait_until(lambda: len(cluster.queues(topic)) == queues)
        return [MessageQueue(topic, BROKER, number) for number in range(queues)]

    def send(self, queue: MessageQueue, bodies: Sequence[bytes], **more: str) -> None:
        """Send bodies to a queue, in batches; `more` are tag and keys."""
        for start in range(0, len(bodies), 200):
            part = [
                Message(queue.topic, body, tag=more.get("tag"), keys=more.get("keys"))
                for body in bodies[start : start + 200]
            ]
            self.producer.send_batch(part, queue=queue)

    def send_one(self, queue: MessageQueue, message: Message) -> None:
        """Send one message to a queue."""
        self.producer.send(message, queue=queue)


def wait_until(condition: Callable[[], bool]) -> None:
    """Wait for what another process does."""
    deadline_s = time.monotonic() + WAIT_S_MAX
    while True:
        try:
            if condition():
                return
        except Exception:
            if time.monotonic() > deadline_s:
                raise
        assert time.monotonic() < deadline_s, "did not come true in time"
        time.sleep(0.05)
