"""The kinds of requests that a broker is driven with; each notes what it asked and was promised."""

import random
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from simulation.ledger import Copy, Ledger, Offset, Transaction
from simulation.machine import MachineClock
from simulation.wire import PRODUCERS, Wire

from downrange.model.names import retry_topic
from downrange.protocol.headers.transaction import TRANSACTION_COMMIT, TRANSACTION_ROLLBACK
from downrange.protocol.message_id import decode_message_id

QUEUES = 2
LEVEL_MS = {1: 1_000, 2: 5_000, 3: 10_000}
BODY_PADDING_MAX = 600


@dataclass(slots=True)
class Driver:
    """One seed's worth of requests to one broker."""

    rng: random.Random
    wire: Wire
    ledger: Ledger
    clock: MachineClock
    number: int = 0
    moving: set[tuple[str, str, int]] = field(default_factory=set)
    kept: set[str] = field(default_factory=set)  # topics that something may still arrive in
    sending: Counter[str] = field(default_factory=Counter)  # requests in flight, by topic
    undecided: list[tuple[bytes, str, int, int]] = field(default_factory=list)
    stored: list[tuple[str, bytes, int]] = field(default_factory=list)  # topic, body, log offset

    @property
    def now_s(self) -> float:
        """Virtual time, which no fault moves."""
        return self.clock.monotonic_s()

    def body(self, kind: str) -> bytes:
        """A body that nobody else has, of a random length."""
        self.number += 1
        padding = "x" * self.rng.randrange(BODY_PADDING_MAX)
        return f"{kind}-{self.number}-{padding}".encode()

    def topic(self) -> str | None:
        """A topic that exists for certain."""
        return self.rng.choice(sorted(self.ledger.topics)) if self.ledger.topics else None

    def group(self) -> str | None:
        """A group that exists for certain."""
        return self.rng.choice(sorted(self.ledger.groups)) if self.ledger.groups else None

    @contextmanager
    def sending_to(self, topic: str) -> Iterator[None]:
        """While a message is on its way."""
        self.sending[topic] += 1
        try:
            yield
        finally:
            self.sending[topic] -= 1

    def forget_lost(self) -> None:
        """After a power cut: another message may be where a lost one was."""
        kept = {body for body, _ in self.ledger.messages.values()}
        self.stored = [one for one in self.stored if one[1] in kept]
        transactions, newest_s = self.ledger.transactions, self.now_s - self.ledger.window_s
        self.undecided = [one for one in self.undecided if transactions[one[0]].half_s <= newest_s]

    async def step(self) -> str:
        """Do one thing; returns its name. Errors are the caller's."""
        kinds, weights = zip(*REQUESTS.items(), strict=True)
        kind = self.rng.choices(kinds, weights)[0]
        await kind(self)
        return str(kind.__name__)


async def send(driver: Driver) -> None:
    """A message to a topic that exists, or that the send creates."""
    topic = driver.topic()
    if topic is None or driver.rng.random() < 0.1:
        topic = f"auto-{driver.number}"
    await _send(driver, topic)


async def _send(driver: Driver, topic: str) -> None:
    body, queue_id = driver.body("plain"), driver.rng.randrange(QUEUES)
    ledger = driver.ledger
    ledger.attempted[topic].add(body)
    ledger.queues.add((topic, queue_id))
    key = body.decode()
    with driver.sending_to(topic):
        place = await driver.wire.send(topic, queue_id, body, driver.clock.wall_ms(), KEYS=key)
    ledger.messages[topic, place.queue_id, place.queue_offset] = (body, driver.now_s)
    ledger.keyed[topic, place.queue_id, place.queue_offset] = body
    log_offset = decode_message_id(place.message_id).physical_offset
    driver.stored.append((topic, body, log_offset))


async def send_batch(driver: Driver) -> None:
    """Several messages of one queue."""
    topic = driver.topic()
    if topic is None:
        return
    bodies = [driver.body("plain") for _ in range(driver.rng.randrange(2, 6))]
    queue_id = driver.rng.randrange(QUEUES)
    ledger = driver.ledger
    ledger.attempted[topic].update(bodies)
    ledger.queues.add((topic, queue_id))
    with driver.sending_to(topic):
        places = await driver.wire.send_batch(topic, queue_id, bodies, driver.clock.wall_ms())
    for place, body in zip(places, bodies, strict=True):
        ledger.messages[topic, queue_id, place.queue_offset] = (body, driver.now_s)
        ledger.keyed[topic, queue_id, place.queue_offset] = body


async def create_topic(driver: Driver) -> None:
    """A topic that is there for certain once this returns."""
    driver.number += 1
    topic = f"topic-{driver.number}"
    await driver.wire.create_topic(topic, QUEUES)
    driver.ledger.topics.add(topic)


async def delete_topic(driver: Driver) -> None:
    """A topic that must not come back, with its messages."""
    topic = driver.topic()
    if topic is None or len(driver.ledger.topics) < 4:
        return
    if topic in driver.kept or driver.sending[topic]:
        return  # a message that is on its way would create it again
    driver.ledger.forget_topic(topic)
    driver.stored = [one for one in driver.stored if one[0] != topic]
    await driver.wire.delete_topic(topic)
    driver.ledger.deleted_topics.add(topic)


async def create_group(driver: Driver) -> None:
    """A group that is there for certain once this returns."""
    driver.number += 1
    group = f"group-{driver.number}"
    await driver.wire.create_group(group)
    driver.ledger.groups.add(group)


async def delete_group(driver: Driver) -> None:
    """A group that must not come back, with its offsets."""
    group = driver.group()
    if group is None or len(driver.ledger.groups) < 3:
        return
    driver.ledger.forget_group(group)
    driver.ledger.forget_topic(retry_topic(group))
    await driver.wire.delete_group(group)
    driver.ledger.deleted_groups.add(group)


async def commit(driver: Driver) -> None:
    """Progress of a group; only ever forward, as consumers report it."""
    await _move(driver, is_reset=False)


async def reset(driver: Driver) -> None:
    """An operator moves a group back or forth."""
    await _move(driver, is_reset=True)


async def _move(driver: Driver, *, is_reset: bool) -> None:
    group, topic = driver.group(), driver.topic()
    queue_id = driver.rng.randrange(QUEUES)
    if group is None or topic is None:
        return
    places = [place for place in driver.ledger.messages if place[:2] == (topic, queue_id)]
    if not places:
        return
    key = (group, topic, queue_id)
    if key in driver.moving:
        return  # of two moves at the same time either may be the last
    driver.moving.add(key)
    try:
        await _move_to(driver, key, max(place[2] for place in places) + 1, is_reset=is_reset)
    finally:
        driver.moving.discard(key)


async def _move_to(driver: Driver, key: tuple[str, str, int], end: int, *, is_reset: bool) -> None:
    events, rng = driver.ledger.offsets[key], driver.rng
    last = min(max(event.value or 0 for event in events), end)
    value = rng.randint(0 if is_reset else last, end)
    event = Offset(value, driver.now_s, is_reset=is_reset)
    event.is_certain = False  # until it is answered
    events.append(event)
    if is_reset:
        await driver.wire.reset(*key, value)
    else:
        await driver.wire.commit(*key, value)
    event.at_s = driver.now_s
    # A commit may be swallowed by a reset that no pull has taken yet.
    event.is_certain = is_reset or not any(one.is_reset for one in events)


async def delay(driver: Driver) -> None:
    """A message that must arrive later."""
    topic = driver.topic()
    if topic is None:
        return
    level = driver.rng.choice(sorted(LEVEL_MS))
    body, queue_id = driver.body("delayed"), driver.rng.randrange(QUEUES)
    ledger = driver.ledger
    ledger.attempted[topic].add(body)
    ledger.queues.add((topic, queue_id))
    driver.kept.add(topic)
    due_ms = driver.clock.wall_ms() + LEVEL_MS[level]
    await driver.wire.send(topic, queue_id, body, driver.clock.wall_ms(), DELAY=str(level))
    ledger.copies[body] = Copy(topic, due_ms, driver.now_s)


async def begin_transaction(driver: Driver) -> None:
    """A message that nobody sees before it is committed."""
    topic = driver.topic()
    if topic is None:
        return
    body, queue_id = driver.body("half"), driver.rng.randrange(QUEUES)
    ledger = driver.ledger
    ledger.attempted[topic].add(body)
    ledger.queues.add((topic, queue_id))
    properties = {"TRAN_MSG": "true", "PGROUP": PRODUCERS, "UNIQ_KEY": body.decode()[:32]}
    ledger.transactions[body] = Transaction((topic, queue_id), driver.now_s)
    driver.kept.add(topic)
    now_ms = driver.clock.wall_ms()
    place = await driver.wire.send(topic, queue_id, body, now_ms, **properties)
    ledger.transactions[body].half_s = driver.now_s
    offset = decode_message_id(place.message_id).physical_offset
    driver.undecided.append((body, topic, place.queue_offset, offset))


async def end_transaction(driver: Driver) -> None:
    """A verdict on one of the transactions that were begun."""
    if not driver.undecided:
        return
    index = driver.rng.randrange(len(driver.undecided))
    body, topic, queue_offset, offset = driver.undecided.pop(index)
    one = driver.ledger.transactions[body]
    one.verdict = driver.rng.choice(("commit", "rollback"))
    verdict = TRANSACTION_COMMIT if one.verdict == "commit" else TRANSACTION_ROLLBACK
    await driver.wire.end_transaction(topic, queue_offset, offset, verdict)
    one.ended_s = driver.now_s


async def send_back(driver: Driver) -> None:
    """A consumer gives a message back: it must come to the group's retry topic."""
    group = driver.group()
    if group is None or not driver.stored:
        return
    topic, body, offset = driver.stored.pop(driver.rng.randrange(len(driver.stored)))
    level = driver.rng.choice((1, 2))
    retry, ledger = retry_topic(group), driver.ledger
    ledger.attempted[retry].add(body)
    ledger.queues.add((retry, 0))
    due_ms = driver.clock.wall_ms() + LEVEL_MS[level]
    await driver.wire.send_back(offset, group, topic, level)
    if group in ledger.groups:
        ledger.copies[body] = Copy(retry, due_ms, driver.now_s)


REQUESTS: dict[Callable[[Driver], Awaitable[None]], int] = {
    send: 30,
    send_batch: 8,
    create_topic: 4,
    delete_topic: 2,
    create_group: 3,
    delete_group: 2,
    commit: 12,
    reset: 3,
    delay: 6,
    begin_transaction: 6,
    end_transaction: 6,
    send_back: 5,
}
