"""A rig for tests of transactions: half messages, their check, and producers to be asked."""

import asyncio
from collections.abc import Callable
from pathlib import Path

from unit.broker.bench import Bench, connection_pair, recorder

from downrange.broker.half_messages import HalfMessages
from downrange.broker.offset_table import OffsetTable
from downrange.broker.transaction_check import CheckSettings, Producer, TransactionCheck
from downrange.model.names import HALF_TOPIC, OP_HALF_TOPIC, TRANSACTION_GROUP
from downrange.model.topics import TopicConfig
from downrange.protocol.command import Command
from downrange.protocol.properties import decode_properties, encode_properties
from downrange.protocol.record import Record, decode_record
from downrange.protocol.request_codes import RequestCode
from downrange.store.offset_tables import consumer_offsets_file, pending_resets_file
from downrange.testing.clock import ManualClock
from downrange.testing.virtual_time import run

GROUP = "producers"
LAST = 9_999  # a request that ends a session
BORN_HOST = b"\x7f\x00\x00\x01\x00\x00\xb2\xc4"


class SilentProducer:
    """Is asked and never answers."""

    def __init__(self) -> None:
        self.asked: list[bytes] = []  # bodies

    def send_one_way(
        self, code: int, ext_fields: dict[str, str] | None = None, body: bytes | None = None
    ) -> None:
        assert code == RequestCode.CHECK_TRANSACTION_STATE
        assert ext_fields is not None
        self.asked.append(decode_record(body or b"").body)


class Rig:
    """Half messages and their check, with producers that keep what they are asked."""

    def __init__(
        self, root: Path, clock: ManualClock | None = None, *, settings: CheckSettings | None = None
    ) -> None:
        self.bench = Bench(root, clock)
        bench = self.bench
        self.halves = HalfMessages(
            bench.store, bench.writer, bench.stats, bench.clock, bench.call_later
        )
        config_path = bench.store.settings.config_path
        config_path.mkdir(exist_ok=True)
        self.offsets = OffsetTable(
            consumer_offsets_file(bench.disk, config_path),
            bench.clock,
            pending_resets_file(bench.disk, config_path),
        )
        self.offsets.load()
        self.producer: Producer | None = SilentProducer()
        self.check = TransactionCheck(
            bench.store,
            self.halves,
            bench.writer,
            self.offsets,
            self,
            self,
            bench.clock,
            bench.call_later,
            settings or CheckSettings(broker_name="broker-a"),
        )
        self.picked_groups: list[str] = []

    def pick(self, group: str) -> Producer | None:
        self.picked_groups.append(group)
        return self.producer

    def create_for_send_back(self, topic: str, queue_nums: int, sys_flag: int) -> TopicConfig:
        return TopicConfig(topic_name=topic, write_queue_nums=queue_nums, topic_sys_flag=sys_flag)

    def put(self, body: bytes, **properties: str) -> int:
        """Put a half message as the send handler would; returns its queue offset."""
        text = {"PGROUP": GROUP, "REAL_TOPIC": "T", "REAL_QID": "3", "UNIQ_KEY": "ID"} | properties
        return self.put_record(body, encode_properties(text), self.bench.clock.wall_ms(), 9)

    def put_record(self, body: bytes, text: bytes, born_ms: int, flag: int) -> int:
        appended = self.bench.writer.put(HALF_TOPIC, 0, body, text, 0, flag, born_ms, BORN_HOST)
        self.bench.settle()
        return appended.queue_offset

    def round(self, after_ms: int = 0) -> None:
        """Let time pass, then one round of checks and all it leads to."""
        self.bench.pass_time(after_ms)
        self.check.check()
        self.bench.pass_time(0)
        self.check.settle()

    @property
    def halves_put(self) -> list[tuple[bytes, str]]:
        """Body and check count of all half messages, copies included."""
        return [(record.body, times_of(record)) for record in self.bench.records(HALF_TOPIC)]

    @property
    def progress(self) -> tuple[int, int]:
        query = self.offsets.query
        return query(TRANSACTION_GROUP, HALF_TOPIC, 0), query(TRANSACTION_GROUP, OP_HALF_TOPIC, 0)


def times_of(record: Record) -> str:
    return decode_properties(record.properties).get("TRANSACTION_CHECK_TIMES", "")


def asked_of(rig: Rig, work: Callable[[], None]) -> list[Command]:
    """What a producer that is connected during `work` is asked."""
    asked: list[Command] = []

    async def main() -> None:
        is_done = asyncio.Event()
        client, producer = await connection_pair(
            {
                RequestCode.CHECK_TRANSACTION_STATE: recorder(asked),
                LAST: lambda *_: is_done.set(),
            }
        )
        rig.producer = producer
        work()
        producer.send_one_way(LAST)
        await is_done.wait()
        assert not client.is_closed
        rig.producer = None

    run(main())
    return asked
