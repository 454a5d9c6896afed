"""Producers and consumers that go on over any number of broker lives, and remember everything."""

import asyncio
import contextlib
import random
from collections import Counter
from typing import Self

from faults.broker.peers import Peer, pause, records

from downrange.protocol.headers.fields import decode_header
from downrange.protocol.headers.offset import OffsetResponse, QueryConsumerOffsetRequest
from downrange.protocol.headers.pull import PullResponse
from downrange.protocol.headers.send import SendResponse
from downrange.protocol.record import Record
from downrange.protocol.request_codes import RequestCode
from downrange.protocol.response_codes import ResponseCode
from downrange.remoting.errors import RemotingError

TOPIC = "orders"
GROUP = "readers"
QUEUES = 4
WINDOW = 8  # messages of one producer that wait for their answer
CALL_SECONDS_MAX = 10.0
SUSPEND_MS = 500
Place = tuple[int, int]  # queue id, queue offset


class Ledger:
    """What was promised and what was seen."""

    def __init__(self, seed: int) -> None:
        self._seed = seed
        self.acknowledged: dict[Place, str] = {}
        self.received: dict[Place, str] = {}
        self.committed: Counter[int] = Counter()  # queue id -> furthest offset ever committed
        self.seen: Counter[str] = Counter()

    def body(self, number: str) -> bytes:
        """The message of this number: the same whenever it is asked for."""
        rng = random.Random(f"{self._seed} {number}")
        return f"{number} ".encode() + rng.randbytes(rng.choice((0, 30, 300, 3_000)))

    def acknowledge(self, place: Place, number: str) -> None:
        """The broker has said SEND_OK."""
        assert self.acknowledged.setdefault(place, number) == number, "two messages in one place"
        self.seen["acknowledged"] += 1

    def receive(self, queue_id: int, record: Record) -> None:
        """A consumer has got a message: it is whole, and nobody has ever got another one there."""
        assert record.queue_id == queue_id
        place = (queue_id, record.queue_offset)
        number = record.body.split(b" ")[0].decode()
        assert record.body == self.body(number), f"{number} has another body"
        self.seen["repeated"] += place in self.received
        known = self.received.setdefault(place, number)
        assert known == number, f"{place} was {known} and is {number}"

    def missing(self) -> list[Place]:
        """What was acknowledged and not received yet."""
        return [place for place in self.acknowledged if place not in self.received]

    def check(self, queue_ids: range = range(QUEUES)) -> None:
        """Nothing acknowledged is lost or moved, nothing is there twice, every queue in order."""
        assert self.missing() == []
        for place, number in self.acknowledged.items():
            assert self.received[place] == number, f"{number} is not where it was put"
        numbers = list(self.received.values())
        assert len(set(numbers)) == len(numbers), "a message is there twice"
        for queue_id in queue_ids:
            self._check_order(queue_id)

    def _check_order(self, queue_id: int) -> None:
        offsets = sorted(offset for queue, offset in self.received if queue == queue_id)
        assert offsets == list(range(len(offsets))), "a queue has gaps"
        last: dict[str, int] = {}
        for offset in offsets:
            producer, number = self.received[queue_id, offset].split("-")
            assert last.get(producer, -1) < int(number), "a queue is out of order"
            last[producer] = int(number)

    def report(self) -> str:
        """What was counted, for the summary."""
        return (
            f"acknowledged={len(self.acknowledged)} received={len(self.received)} lost=0 "
            f"not_acknowledged_but_there={len(self.received) - len(self.acknowledged)} "
            f"{dict(sorted(self.seen.items()))}"
        )


class Producer:
    """Sends to all queues in turn, several messages in flight, each exactly once."""

    def __init__(
        self, name: str, address: str, ledger: Ledger, call_seconds: float = CALL_SECONDS_MAX
    ) -> None:
        self._call_seconds = call_seconds
        self._name = name
        self._address = address
        self._ledger = ledger
        self._next = 0

    async def run(self, end: asyncio.Event, count_max: int | None = None) -> None:
        """Send until told to end, or until the broker is gone."""
        peer = Peer(self._address)
        waiting: set[asyncio.Task[bool]] = set()
        try:
            while not end.is_set() and (count_max is None or count_max > 0):
                count_max = None if count_max is None else count_max - 1
                waiting.add(asyncio.ensure_future(self._send(peer, self._next)))
                self._next += 1
                if len(waiting) < WINDOW:
                    continue
                done, waiting = await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
                if not all(task.result() for task in done):
                    return
        finally:
            if waiting:
                await asyncio.wait(waiting)
                for task in waiting:
                    task.result()
            peer.close()

    async def _send(self, peer: Peer, number: int) -> bool:
        name = f"{self._name}-{number}"
        self._ledger.seen["sent"] += 1
        queue_id = number % QUEUES
        try:
            answer = await peer.send(
                TOPIC,
                self._ledger.body(name),
                queue_id=queue_id,
                key=f"K{self._name}N{number}",
                timeout_s=self._call_seconds,
            )
        except RemotingError as error:
            self._ledger.seen[type(error).__name__] += 1
            return False
        assert answer.code == ResponseCode.SUCCESS, answer
        header = decode_header(SendResponse, answer.ext_fields)
        assert header.queue_id == queue_id
        self._ledger.acknowledge((queue_id, header.queue_offset), name)
        return True


class Consumer:
    """Reads one queue from the committed offset on, and commits with each pull what it has."""

    def __init__(self, queue_id: int, address: str, ledger: Ledger) -> None:
        self._queue_id = queue_id
        self._address = address
        self._ledger = ledger

    async def run(self, end: asyncio.Event) -> None:
        """Read until told to end; a broker that is gone is asked again and again."""
        while not end.is_set():
            peer = Peer(self._address)
            with contextlib.suppress(RemotingError):
                await self._read(peer, end)
            peer.close()
            await pause(0.02)

    async def _read(self, peer: Peer, end: asyncio.Event) -> None:
        ledger, queue_id = self._ledger, self._queue_id
        offset = await self._committed_offset(peer)
        assert offset <= ledger.committed[queue_id], "the broker knows what was never committed"
        while not end.is_set():
            ledger.committed[queue_id] = max(ledger.committed[queue_id], offset)
            answer = await peer.pull(
                TOPIC,
                offset,
                queue_id=queue_id,
                group=GROUP,
                commit=offset,
                suspend_ms=SUSPEND_MS,
                timeout_s=CALL_SECONDS_MAX,
            )
            if answer.code == ResponseCode.TOPIC_NOT_EXIST:
                return
            found = ResponseCode.SUCCESS, ResponseCode.PULL_NOT_FOUND
            # A commit is never ahead of what a crash leaves, so no offset is ever out of range.
            assert answer.code in found, answer
            for record in records(answer):
                assert record.queue_offset == offset
                ledger.receive(queue_id, record)
                offset += 1
            assert decode_header(PullResponse, answer.ext_fields).next_begin_offset == offset

    async def _committed_offset(self, peer: Peer) -> int:
        header = QueryConsumerOffsetRequest(
            consumer_group=GROUP, topic=TOPIC, queue_id=self._queue_id
        )
        answer = await peer.call(
            RequestCode.QUERY_CONSUMER_OFFSET, header, timeout_s=CALL_SECONDS_MAX
        )
        if answer.code == ResponseCode.QUERY_NOT_FOUND:
            return 0
        assert answer.code == ResponseCode.SUCCESS, answer
        return decode_header(OffsetResponse, answer.ext_fields).offset


async def read_everything(address: str, ledger: Ledger) -> None:
    """Read every queue from its start: what was received once is there now."""
    peer = Peer(address)
    for queue_id in range(QUEUES):
        offset = 0
        while found := records(await peer.pull(TOPIC, offset, queue_id=queue_id, group="auditors")):
            for record in found:
                assert record.queue_offset == offset
                ledger.receive(queue_id, record)
                offset += 1
        known = sum(1 for queue, _ in ledger.received if queue == queue_id)
        assert offset == known, "what a consumer has got is gone"
    peer.close()


class Readers:
    """One consumer for each queue, from `async with` to its end."""

    def __init__(self, address: str, ledger: Ledger) -> None:
        self._consumers = [Consumer(queue_id, address, ledger) for queue_id in range(QUEUES)]
        self._ledger = ledger
        self._end = asyncio.Event()
        self._tasks: list[asyncio.Task[None]] = []

    async def __aenter__(self) -> Self:
        self._tasks = [asyncio.ensure_future(one.run(self._end)) for one in self._consumers]
        return self

    async def __aexit__(self, *_exception: object) -> None:
        self._end.set()
        await asyncio.gather(*self._tasks)

    async def catch_up(self, seconds_max: float = 60.0) -> None:
        """Return when everything acknowledged was received."""
        async with asyncio.timeout(seconds_max):
            while self._ledger.missing():
                for task in self._tasks:
                    if task.done():
                        task.result()
                await pause(0.02)
