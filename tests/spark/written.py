"""Reads topics back with our own client, to see what a Spark job has written."""

import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from downrange.client.message import ReceivedMessage
from downrange.client.settings import ClientSettings
from downrange.sync.consumers import PullConsumer

WAIT_S_MAX = 60.0


@contextmanager
def reader(name_server: str) -> Iterator[PullConsumer]:
    """A consumer of its own group."""
    with PullConsumer("read-back", client=ClientSettings(name_servers=name_server)) as consumer:
        yield consumer


def messages(name_server: str, topic: str) -> list[ReceivedMessage]:
    """All messages of a topic, queue by queue."""
    found: list[ReceivedMessage] = []
    with reader(name_server) as consumer:
        for queue in consumer.fetch_queues(topic):
            offset, end = consumer.min_offset(queue), consumer.max_offset(queue)
            while offset < end:
                result = consumer.pull(queue, offset)
                found += result.messages
                assert result.next_offset > offset
                offset = result.next_offset
    return found


def await_messages(name_server: str, topic: str, count: int) -> list[ReceivedMessage]:
    """The same, when there are so many: delayed messages come when they come."""
    deadline_s = time.monotonic() + WAIT_S_MAX
    while True:
        found = messages(name_server, topic)
        if len(found) >= count or time.monotonic() > deadline_s:
            assert len(found) >= count, f"{len(found)} of {count} messages of {topic!r} came"
            return found
        time.sleep(0.2)


def bodies(found: Sequence[ReceivedMessage]) -> list[bytes]:
    """Their bodies, sorted."""
    return sorted(message.body for message in found)


def stamps(found: Sequence[ReceivedMessage]) -> list[str]:
    """Their sink ids."""
    return [message.properties["__DOWNRANGE_SINK_ID"] for message in found]
