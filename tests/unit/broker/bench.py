"""A small broker's store with a writer, time in the hands of the test, and captured records."""

import heapq
import itertools
from collections.abc import Callable, Iterator
from pathlib import Path

from golden import captured
from unit.store.building import StagedDisk, open_store, records_of

from downrange.broker.message_writer import MessageWriter
from downrange.broker.stats import BrokerStats
from downrange.broker.store_keeper import StoreKeeper
from downrange.protocol.command import Command
from downrange.protocol.command_codec import decode_command
from downrange.protocol.delay_levels import DelayLevels
from downrange.protocol.frame import FrameDecoder
from downrange.protocol.record import MAGIC_BLANK, Record, decode_record, record_size
from downrange.remoting.connection import Answer, Connection, Handler
from downrange.remoting.memory import MemoryNetwork
from downrange.runtime.blocking import InLine
from downrange.runtime.clock import monotonic_ms
from downrange.runtime.service import Supervisor
from downrange.store.appended import Appended
from downrange.store.message_store import MessageStore
from downrange.testing.clock import ManualClock

CLIENT_HOST = b"\x7f\x00\x00\x01\x00\x00\xc3\x51"  # 127.0.0.1:50001


class HandTimer:
    """A timer that a test makes fire."""

    def __init__(self, callback: Callable[[], None]) -> None:
        self.callback = callback
        self.is_cancelled = False

    def cancel(self) -> None:
        self.is_cancelled = True


class Bench:
    """A store below `root` and what puts messages into it. Nothing happens but by `pass_time`."""

    def __init__(
        self, root: Path, clock: ManualClock | None = None, disk: StagedDisk | None = None
    ) -> None:
        self.clock = clock or ManualClock()
        self.disk = disk or StagedDisk()
        # The sizes of the captured stores, so that one of those can be opened too.
        self.store: MessageStore = open_store(
            root,
            self.clock,
            self.disk,
            segment_bytes=captured.SEGMENT_BYTES,
            queue_entries=captured.QUEUE_FILE_ENTRIES,
            index_slots=captured.INDEX_SLOTS,
            index_items=captured.INDEX_ITEMS,
        )
        self.stats = BrokerStats()
        keeper = StoreKeeper(self.store, Supervisor(lambda *_: None), InLine())
        self.writer = MessageWriter(self.store, keeper, DelayLevels.parse())
        self._timers: list[tuple[int, int, HandTimer]] = []
        self._numbers = itertools.count()

    def call_later(self, delay_s: float, callback: Callable[[], None]) -> HandTimer:
        timer = HandTimer(callback)
        due_ms = monotonic_ms(self.clock) + round(delay_s * 1000)
        heapq.heappush(self._timers, (due_ms, next(self._numbers), timer))
        return timer

    @property
    def next_timer_ms(self) -> int | None:
        """How far away the next timer is."""
        times = [due_ms for due_ms, _, timer in self._timers if not timer.is_cancelled]
        return min(times) - monotonic_ms(self.clock) if times else None

    def run_timer(self) -> None:
        """Fire the next timer, now."""
        while True:
            _, _, timer = heapq.heappop(self._timers)
            if not timer.is_cancelled:
                timer.callback()
                return

    def pass_time(self, milliseconds: int) -> None:
        """Let time pass; timers fire when they are due, and all that is put becomes visible."""
        end_ms = monotonic_ms(self.clock) + milliseconds
        self.settle()
        while (wait_ms := self.next_timer_ms) is not None:
            if monotonic_ms(self.clock) + wait_ms > end_ms:
                break
            self.clock.advance(max(wait_ms, 0))
            self.run_timer()
            self.settle()
        self.clock.advance(end_ms - monotonic_ms(self.clock))
        self.settle()

    def settle(self) -> None:
        """Make all that was put durable and visible."""
        assert self.store.flush_now()
        self.store.dispatch_some()

    def records(self, topic: str, queue_id: int = 0) -> list[Record]:
        """What consumers would see."""
        records: list[Record] = []
        while found := records_of(self.store.read(topic, queue_id, len(records), 32)):
            records += found
        return records

    def all_records(self, topic: str) -> list[Record]:
        """What consumers of all queues would see."""
        queues = self.store.queues.of_topic(topic)
        return [record for queue in queues for record in self.records(topic, queue.queue_id)]

    def fill_disk(self, *, is_full: bool) -> None:
        """Let the store refuse messages, or take them again."""
        self.disk.used_ratio = 0.95 if is_full else 0.10
        self.store.expire_some()


async def connection_pair(
    client_handlers: dict[int, Handler] | None = None,
) -> tuple[Connection, Connection]:
    """The client's and the broker's end of a connection in memory."""
    network = MemoryNetwork()
    ends: list[Connection] = []

    def make(handlers: dict[int, Handler]) -> Callable[[], Connection]:
        def factory() -> Connection:
            connection = Connection(handlers)
            ends.append(connection)
            return connection

        return factory

    await network.listen("127.0.0.1", 10911, make({}))
    await network.connect("127.0.0.1", 10911, make(client_handlers or {}))
    return ends[1], ends[0]


def recorder(into: list[Command], answer: Callable[[Command], Answer] = lambda _: None) -> Handler:
    """A handler that keeps what it is sent."""

    def handle(request: Command, _: Connection) -> Answer:
        into.append(request)
        return answer(request)

    return handle


def captured_records(capture: str = "clean") -> Iterator[Record]:
    """Every record of a captured commit log, in order."""
    for _, data in captured.store_files(capture, "commitlog"):
        start = 0
        while start + 8 < len(data):
            magic = int.from_bytes(data[start + 4 : start + 8], "big", signed=True)
            if magic in {0, MAGIC_BLANK}:
                break
            yield decode_record(data, start)
            start += record_size(data, start)


def without_place(record: Record) -> Record:
    """A record but for what depends on when and where it was put."""
    return record._replace(queue_offset=0, physical_offset=0, store_timestamp=0, prepared_offset=0)


def put_captured(bench: Bench, record: Record) -> Appended:
    """Put a captured record as it is, where it belongs."""
    appended = bench.store.append(
        record.topic.decode(),
        record.queue_id,
        record.body,
        record.properties,
        record.sys_flag,
        record.flag,
        record.born_timestamp,
        record.born_host,
        record.reconsume_times,
    )
    bench.settle()
    return appended


def captured_requests(code: int) -> list[Command]:
    """Every captured request with this code, from clients and from brokers."""
    requests = []
    for frame in captured.frames():
        if frame.capture == "clean":
            decoder = FrameDecoder()
            decoder.feed(frame.frame)
            whole = decoder.next_frame()
            assert whole is not None
            command = decode_command(whole)
            if command.code == code and not command.is_response:
                requests.append(command)
    return requests
