"""A program that fills a downrange store by a seeded plan and writes a line per message.

Usage: store_writer.py ROOT LINES SEED COUNT close|forever

A line is written after its message was appended, so who kills the program may expect every message
of which there is a whole line. With `forever` it goes on until it is killed.
"""

import sys
from pathlib import Path
from random import Random
from typing import IO

import msgspec
from interop.exchange_plan import LONG_TOPIC, QUEUES, SCHEDULE_TOPIC, TOPICS, downrange_settings
from interop.message_lines import line_of_record

from downrange.protocol.batch import encode_batch
from downrange.protocol.compression import compress
from downrange.protocol.delay_levels import queue_of_level
from downrange.protocol.hosts import encode_host
from downrange.protocol.properties import encode_properties
from downrange.protocol.record import decode_record
from downrange.protocol.sys_flag import BORN_HOST_V6, CompressionType, with_compression
from downrange.protocol.unique_id import UniqueIdGenerator
from downrange.runtime.clock import SystemClock
from downrange.store.appended import Appended
from downrange.store.message_store import MessageStore

STEP_MESSAGES = 500
DERIVED_FLUSH_MESSAGES = 20_000
COMPRESS_OVER_BYTES = 4096
LEVEL_OF_TWO_HOURS = 18
WORDS = b"the quick brown fox jumps over the lazy dog; "
BORN_V4 = encode_host("127.0.0.1", 51_234)
BORN_V6 = encode_host("::1", 51_234)


class StoreWriter:
    """Appends messages of every kind and does what a broker does in between."""

    def __init__(self, store: MessageStore, lines: IO[bytes], seed: int) -> None:
        self._store = store
        self._lines = lines
        self._random = Random(seed)
        self._clock = SystemClock()
        self._ids = UniqueIdGenerator(
            ip="127.0.0.1", process_id=1, clock=self._clock, random=self._random
        )
        self.count = 0

    def step(self) -> None:
        """Append some messages, make them visible, and flush now and then."""
        end = self.count + STEP_MESSAGES
        while self.count < end:
            if self._random.randrange(24) == 0:
                self._append_batch()
            else:
                self._append_one()
        self._store.dispatch_some()
        if self._store.flush_is_due():
            self._store.flush_now()
        if self.count % DERIVED_FLUSH_MESSAGES < STEP_MESSAGES:
            job = self._store.begin_derived_flush()
            job.run()
            self._store.finish_derived_flush(job)
        self._lines.flush()

    def _append_one(self) -> None:
        random = self._random
        topic, queue_id = random.choice(TOPICS), random.randrange(QUEUES)
        properties = self._draw_properties()
        kind = random.randrange(1000)
        if kind == 0:
            level = LEVEL_OF_TWO_HOURS
            properties |= {"DELAY": str(level), "REAL_TOPIC": topic, "REAL_QID": str(queue_id)}
            topic, queue_id = SCHEDULE_TOPIC, queue_of_level(level)
        elif kind == 1:
            topic, queue_id = LONG_TOPIC, 0
        body, sys_flag = self._draw_body()
        born_host = BORN_V4
        if random.randrange(8) == 0:
            born_host, sys_flag = BORN_V6, sys_flag | BORN_HOST_V6
        appended = self._store.append(
            topic,
            queue_id,
            body,
            encode_properties(properties),
            sys_flag,
            self.count,
            self._clock.wall_ms(),
            born_host,
            random.randrange(3),
        )
        self._report(appended)

    def _append_batch(self) -> None:
        random = self._random
        messages = [
            (index, random.randbytes(random.randrange(400)), self._draw_property_text())
            for index in range(random.randrange(8, 64))
        ]
        for appended in self._store.append_batch(
            random.choice(TOPICS),
            random.randrange(QUEUES),
            encode_batch(messages),
            born_timestamp=self._clock.wall_ms(),
            born_host=BORN_V4,
        ):
            self._report(appended)

    def _draw_property_text(self) -> bytes:
        return encode_properties(self._draw_properties())

    def _draw_properties(self) -> dict[str, str]:
        number = self._random.randrange(1 << 20)
        keys = f"key-{number} shared-{number % 50}" if number % 3 == 0 else f"key-{number}"
        properties = {"KEYS": keys, "UNIQ_KEY": self._ids.next_id(), "WAIT": "true"}
        if number % 7:
            properties["TAGS"] = f"tag-{number % 5}"
        if number % 11 == 0:
            properties["wörter"] = f"grüße 世界 🚀 {number}"
        return properties

    def _draw_body(self) -> tuple[bytes, int]:
        random = self._random
        kind = random.randrange(100)
        size = random.randrange(4_000, 20_000) if kind < 4 else random.randrange(2_000)
        body = random.randbytes(size) if kind % 4 else (WORDS * (size // len(WORDS) + 1))[:size]
        if size <= COMPRESS_OVER_BYTES:
            return body, 0
        method = random.choice(list(CompressionType))
        return compress(body, method), with_compression(0, method)

    def _report(self, appended: Appended) -> None:
        view = self._store.lookup.record_at(appended.physical_offset)
        assert view is not None
        line = line_of_record(decode_record(view))
        self._lines.write(msgspec.json.encode(line) + b"\n")
        self.count += 1


def main(root: Path, lines_path: Path, seed: int, count: int, *, forever: bool) -> None:
    """Fill the store; see the module's text."""
    store = MessageStore(downrange_settings(root))
    store.open()
    with lines_path.open("wb") as lines:
        writer = StoreWriter(store, lines, seed)
        while forever or writer.count < count:
            writer.step()
    store.close()


if __name__ == "__main__":
    root, lines_path, seed, count, end = sys.argv[1:]
    main(Path(root), Path(lines_path), int(seed), int(count), forever=end == "forever")
