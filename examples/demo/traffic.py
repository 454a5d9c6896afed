"""The demonstration's client: sends all events, and has a group consume some of them."""

import asyncio
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from datetime import datetime
from itertools import islice
from typing import Final

import msgspec

import downrange
from downrange import Message
from examples.demo.orders import Event

ORDERS: Final = "orders"
GROUP: Final = "fraud-check"
SUSPICIOUS_CENTS: Final = 40_000
BATCH: Final = 250
IN_FLIGHT: Final = 8
SEND_S_MAX: Final = 30.0

Cell = tuple[datetime, str]


@dataclass(slots=True)
class Produced:
    """What was sent, counted by the producer itself."""

    events: int = 0
    broken: int = 0
    seconds: float = 0.0
    orders: Counter[Cell] = field(default_factory=Counter)
    cents: Counter[Cell] = field(default_factory=Counter)

    def add(self, event: Event) -> None:
        """Count an event."""
        self.events += 1
        if event.hour is None:
            self.broken += 1
        else:
            self.orders[event.hour, event.region] += 1
            self.cents[event.hour, event.region] += event.cents


@dataclass(frozen=True, slots=True)
class Consumed:
    """What a group did."""

    messages: int
    suspicious: int
    broken: int
    seconds: float


async def produce(
    name_servers: str, events: Iterable[Event], on_sent: Callable[[int], None]
) -> Produced:
    """Send all events in batches, some under way at a time; every batch has its receipt."""
    produced = Produced()
    batches = _batches(events)
    began_s = time.monotonic()
    async with downrange.connect(name_servers) as mq:

        async def work() -> None:
            for batch in batches:  # shared: each worker takes the next one
                messages = [
                    Message(ORDERS, event.body, tag=event.region, keys=event.key) for event in batch
                ]
                await mq.producer.send_batch(messages, timeout_s=SEND_S_MAX)
                for event in batch:
                    produced.add(event)
                on_sent(len(batch))

        async with asyncio.TaskGroup() as tasks:
            for _ in range(IN_FLIGHT):
                tasks.create_task(work())
    produced.seconds = time.monotonic() - began_s
    return produced


async def consume(
    name_servers: str, count: int, timeout_s: float, on_message: Callable[[int], None]
) -> Consumed:
    """Look at so many orders as a consumer group; fewer if the time is over before."""
    seen = suspicious = broken = 0
    began_s = time.monotonic()
    async with downrange.connect(name_servers) as mq:
        stream = mq.consume(
            ORDERS, group=GROUP, start_at="first", prefetch=1_000, idle_timeout_s=timeout_s
        )
        async for message in stream:  # leaving the body acknowledges
            seen += 1
            try:
                order = msgspec.json.decode(message.body)
                suspicious += order["cents"] * order["quantity"] > SUSPICIOUS_CENTS
            except (msgspec.DecodeError, TypeError):
                broken += 1
            if seen % BATCH == 0 or seen == count:
                on_message(seen)
            if seen == count or time.monotonic() - began_s > timeout_s:
                stream.stop()
    return Consumed(seen, suspicious, broken, time.monotonic() - began_s)


async def count_messages(name_servers: str, topic: str, count: int, timeout_s: float) -> int:
    """How many messages a topic has: returns at `count`, or when no more come in time."""
    seen = 0
    async with downrange.connect(name_servers) as mq:
        stream = mq.consume(
            topic, group=f"count-{topic}", start_at="first", idle_timeout_s=timeout_s
        )
        async for _ in stream:
            seen += 1
            if seen == count:
                stream.stop()
    return seen


def _batches(events: Iterable[Event]) -> Iterator[list[Event]]:
    remaining = iter(events)
    while batch := list(islice(remaining, BATCH)):
        yield batch
