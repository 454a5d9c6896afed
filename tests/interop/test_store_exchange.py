"""The same store directory, written by one system and read by the other, in both directions."""

import contextlib
import os
import shutil
import subprocess
import sys
import time
from bisect import bisect_left
from collections.abc import Mapping
from pathlib import Path
from typing import Self

import pytest
from interop import apache, exchange_plan, message_lines, store_writer
from interop.exchange_plan import HALF_TOPIC, LONG_TOPIC, OP_TOPIC, SCHEDULE_TOPIC, TOPICS
from interop.message_lines import MessageLine, Place, ReceiptLine, StoreFacts

from downrange.protocol.message_id import decode_message_id
from downrange.runtime.clock import SystemClock
from downrange.store.filter_tables import GroupFilter
from downrange.store.message_store import MessageStore

pytestmark = pytest.mark.interop

PROGRAM_SECONDS_MAX = 300.0
POLL_SECONDS = 0.1
SEED = 20_240_601
STOPS = ("clean", "killed")
TRANSACTIONS = 30
ENDLESS = 10_000_000


class ApacheBroker:
    """An Apache broker on a store directory with its own name server, and programs against it."""

    def __init__(self, folder: Path, store: Path) -> None:
        self.folder = folder
        self._servers = contextlib.ExitStack()
        with contextlib.ExitStack() as servers:
            name_server = servers.enter_context(apache.start_name_server(folder / "name-server"))
            self.name_server = name_server.address
            plan = apache.plan_broker(
                folder / "broker", store, self.name_server, exchange_plan.APACHE_SETTINGS
            )
            self.server = servers.enter_context(apache.start_broker(plan))
            self._servers = servers.pop_all()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_exception: object) -> None:
        self._servers.close()

    def produce(self, count: int, seed: int, *, transactions: int = 0) -> list[ReceiptLine]:
        arguments = self.produce_arguments(count, seed, transactions)
        lines = apache.run_program(
            "Produce", arguments, self.folder / f"produce-{seed}", seconds_max=PROGRAM_SECONDS_MAX
        )
        return StoreFacts.of_lines(lines).receipts

    def produce_arguments(self, count: int, seed: int, transactions: int) -> dict[str, str | int]:
        return {
            "nameServer": self.name_server,
            "brokerAddress": self.server.address,
            "seed": seed,
            "count": count,
            "topics": ",".join(TOPICS),
            "queues": exchange_plan.QUEUES,
            "transactions": transactions,
            "longTopic": LONG_TOPIC,
        }

    def dump(self, *topics: str) -> StoreFacts:
        arguments: dict[str, str | int] = {
            "nameServer": self.name_server,
            "topics": ",".join((*TOPICS, LONG_TOPIC, SCHEDULE_TOPIC, *topics)),
            "samples": 8,
        }
        lines = apache.run_program(
            "Dump", arguments, self.folder / "dump", seconds_max=PROGRAM_SECONDS_MAX
        )
        return StoreFacts.of_lines(lines)

    def end(self, stop: str) -> None:
        if stop == "clean":
            self.server.stop()
        else:
            self.server.kill()


def read_store(root: Path, expected: StoreFacts) -> dict[Place, MessageLine]:
    """Open a directory with our store, compare its answers, and return all its messages."""
    store = MessageStore(exchange_plan.downrange_settings(root))
    store.open()
    try:
        message_lines.assert_answers(store, expected)
        return StoreFacts.of_store(store).messages
    finally:
        store.close()


def assert_acknowledged(messages: Mapping[Place, MessageLine], receipts: list[ReceiptLine]) -> None:
    """What a producer was promised is in the store: at the place, under the id, with the body."""
    by_physical_offset = {line.physical_offset: line for line in messages.values()}
    in_topic = {(line.topic, line.properties.get("UNIQ_KEY")) for line in messages.values()}
    for receipt in receipts:
        if receipt.offset_msg_id is not None:
            physical_offset = decode_message_id(receipt.offset_msg_id).physical_offset
            line = by_physical_offset[physical_offset]
            assert line.body_sha1 == receipt.body_sha1, receipt
            assert line.properties["UNIQ_KEY"] == receipt.msg_id, receipt
            assert line.queue_offset == receipt.queue_offset, receipt
        else:
            is_visible = (receipt.topic, receipt.msg_id) in in_topic
            assert is_visible == (receipt.send == "COMMIT_MESSAGE"), receipt


def assert_consistent(facts: StoreFacts) -> None:
    """Apache's searches by time and by key agree with the messages it returned."""
    times: dict[tuple[str, int], list[int]] = {}
    keys: dict[tuple[str, str], set[int]] = {}
    for line in sorted(facts.messages.values(), key=lambda line: line.place):
        times.setdefault((line.topic, line.queue_id), []).append(line.store_timestamp)
        for key in [line.properties["UNIQ_KEY"], *line.properties.get("KEYS", "").split(" ")]:
            keys.setdefault((line.topic, key), set()).add(line.physical_offset)
    for queue in facts.queues.values():
        stored = times.get((queue.topic, queue.queue_id), [])
        assert queue.max_offset - queue.min_offset == len(stored), queue
        for asked, offset in zip(queue.times, queue.offsets, strict=True):
            assert offset == queue.min_offset + bisect_left(stored, asked), (queue, asked)
    for query in facts.queries:
        expected = keys[query.topic, query.key]
        newest = sorted(expected)[-message_lines.QUERY_COUNT_MAX :]
        assert sorted(query.offsets) == newest, query


def facts_before(facts: StoreFacts, time_ms: int) -> StoreFacts:
    """What of the facts does not depend on messages that were stored later."""
    messages = {p: line for p, line in facts.messages.items() if line.store_timestamp < time_ms}
    newer = facts.messages.keys() - messages.keys()
    newer_offsets = {facts.messages[place].physical_offset for place in newer}
    grown = {(topic, queue_id) for topic, queue_id, _ in newer}
    return StoreFacts(
        messages=messages,
        queues={name: queue for name, queue in facts.queues.items() if name not in grown},
        queries=[query for query in facts.queries if newer_offsets.isdisjoint(query.offsets)],
    )


def await_lines(path: Path, process: subprocess.Popen[bytes], count: int) -> None:
    """Wait until a child has written that many lines."""
    deadline = time.monotonic() + PROGRAM_SECONDS_MAX
    while time.monotonic() < deadline:
        if path.exists() and path.read_bytes().count(b"\n") >= count:
            return
        assert process.poll() is None, f"the writer of {path.name} ended early"
        time.sleep(POLL_SECONDS)
    pytest.fail(f"{path.name} has no {count} lines after {PROGRAM_SECONDS_MAX:.0f} s")


def test_downrange_reads_what_apache_wrote_and_stopped(tmp_path: Path) -> None:
    root = tmp_path / "store"
    apache.allow_long_retry_topic(root)
    with ApacheBroker(tmp_path, root) as broker:
        receipts = broker.produce(exchange_plan.MESSAGES, SEED, transactions=TRANSACTIONS)
        dumped = broker.dump(HALF_TOPIC, OP_TOPIC)
        broker.end("clean")
    assert len(receipts) >= exchange_plan.MESSAGES
    assert len(list((root / "commitlog").iterdir())) > 1
    found = read_store(root, dumped)
    message_lines.assert_holds(found, dumped.messages)
    assert_acknowledged(found, receipts)


def test_downrange_recovers_what_apache_wrote_until_it_was_killed(tmp_path: Path) -> None:
    """Both systems recover the same crashed directory, one of them a copy, and must agree."""
    root, copy = tmp_path / "store", tmp_path / "copy"
    apache.allow_long_retry_topic(root)
    with ApacheBroker(tmp_path, root) as broker:
        receipts = broker.produce(exchange_plan.MESSAGES, SEED + 1, transactions=TRANSACTIONS)
        arguments = broker.produce_arguments(ENDLESS, SEED + 2, 0)
        output = tmp_path / "endless" / "Produce.out"
        with apache.start_program("Produce", arguments, output.parent) as producer:
            await_lines(output, producer, exchange_plan.MORE_MESSAGES)
            broker.end("killed")
    killed_ms = SystemClock().wall_ms()
    receipts += StoreFacts.of_lines(apache.printed_lines(output)).receipts
    assert (root / "abort").exists()
    shutil.copytree(root, copy)
    with ApacheBroker(tmp_path / "second", copy) as broker:
        recovered = broker.dump(HALF_TOPIC)
    # Delayed messages that became due meanwhile are delivered to the copy alone.
    old = facts_before(recovered, killed_ms)
    found = read_store(root, old)
    message_lines.assert_holds(found, old.messages)
    shared = {place: line for place, line in found.items() if place[0] != OP_TOPIC}
    message_lines.assert_holds(recovered.messages, shared)
    assert_acknowledged(found, receipts)


@pytest.mark.parametrize("stop", STOPS)
def test_apache_reads_what_downrange_wrote_and_downrange_reads_what_apache_added(
    stop: str, tmp_path: Path
) -> None:
    root = tmp_path / "store"
    exchange_plan.save_tables(root)
    filters_before = exchange_plan.filter_table(root).get(TOPICS[0], exchange_plan.SQL_GROUP)
    written = write_store(root, tmp_path / "written.jsonl", stop)
    assert len(written) >= exchange_plan.MESSAGES
    assert len(list((root / "commitlog").iterdir())) > 1
    with ApacheBroker(tmp_path, root) as broker:
        dumped = broker.dump()
        message_lines.assert_holds(dumped.messages, written)
        # A kill may come between an append and its line, so there may be more than was reported.
        assert stop == "killed" or dumped.messages.keys() == written.keys()
        assert_consistent(dumped)
        receipts = broker.produce(exchange_plan.MORE_MESSAGES, SEED + 3)
        dumped = broker.dump()
        broker.end(stop)
    message_lines.assert_holds(dumped.messages, written)
    found = read_store(root, dumped)
    message_lines.assert_holds(found, dumped.messages)
    assert_acknowledged(found, receipts)
    if stop == "clean":
        assert_filters_kept(root, filters_before)


def assert_filters_kept(root: Path, before: GroupFilter | None) -> None:
    """An Apache broker drops all subscriptions whose bits are not of its Bloom filter."""
    after = exchange_plan.filter_table(root).get(TOPICS[0], exchange_plan.SQL_GROUP)
    assert before is not None
    assert after is not None
    assert (after.expression, after.client_version) == (before.expression, before.client_version)
    assert (after.bits, after.born_ms) == (before.bits, before.born_ms)
    text = (root / "config" / "consumerFilter.json").read_text()
    assert '"dead":true' in text, "Apache has written the file again"


def write_store(root: Path, lines: Path, stop: str) -> dict[Place, MessageLine]:
    """Have a child process fill a store, and end it as asked."""
    end = "close" if stop == "clean" else "forever"
    arguments = [root, lines, SEED, exchange_plan.MESSAGES, end]
    tests = str(Path(__file__).resolve().parents[1])
    writer = subprocess.Popen(
        [sys.executable, store_writer.__file__, *map(str, arguments)],
        env={**os.environ, "PYTHONPATH": tests},
    )
    try:
        if stop == "clean":
            assert writer.wait(PROGRAM_SECONDS_MAX) == 0
        else:
            await_lines(lines, writer, exchange_plan.MESSAGES)
    finally:
        writer.kill()
        writer.wait(PROGRAM_SECONDS_MAX)
    assert (root / "abort").exists() == (stop == "killed")
    return StoreFacts.of_lines(apache.printed_lines(lines)).messages
