"""`downrange bench`: a small load, to see what a cluster does with it."""

import asyncio
import time
from typing import Annotated, Final

import typer

from downrange.admin.offset_plan import Target, TargetKind
from downrange.admin.reading import TopicReader
from downrange.app.commands.frame import Call, DryRunOption, cluster_command, new_app
from downrange.app.commands.output import Row, Shown, Table
from downrange.app.commands.topic import TopicArgument
from downrange.client.message import Message
from downrange.client.producer import Producer
from downrange.client.settings import ProducerSettings
from downrange.model.topics import MessageQueue

app = new_app("Measure a small load.")

PRODUCER_GROUP: Final = "DOWNRANGE_BENCH"
COLUMNS: Final = ("phase", "messages", "seconds", "per_second", "mb_per_second", "p50", "p99")


@cluster_command(app, "bench")
async def bench(
    call: Call,
    topic: TopicArgument,
    count: Annotated[int, typer.Option("-c", "--count", min=1, help="Messages.")] = 10_000,
    size: Annotated[int, typer.Option("-s", "--size", min=1, help="Bytes of a body.")] = 128,
    in_flight: Annotated[
        int, typer.Option("-i", "--in-flight", min=1, max=4096, help="Sends under way at once.")
    ] = 64,
    read: Annotated[bool, typer.Option("--read/--no-read", help="Read them back too.")] = True,
    dry_run: DryRunOption = False,
) -> Shown | None:
    """Send messages of a size and read them back; they stay in the topic.

    It tells what one process sees. To compare brokers take a load from several machines.
    """
    if dry_run:
        call.note(f"{count} messages of {size} bytes would be sent to {topic}")
        return None
    rows: list[Row] = []
    async with call.admin() as admin:
        _ = await admin.topics.route(topic)
        reader = TopicReader(admin.session, topic)
        before = await reader.spans(Target(TargetKind.LATEST))
        rows.append(await _send(call, topic, count, size, in_flight))
        if read:
            starts = {queue: span.stop for queue, span in before.items()}
            rows.append(await _read(reader, starts, count, size))
    return Table(COLUMNS, rows)


async def _send(call: Call, topic: str, count: int, size: int, in_flight: int) -> Row:
    body = bytes(index % 94 + 33 for index in range(size))
    waits_s: list[float] = []
    left = count

    async def worker(producer: Producer) -> None:
        nonlocal left
        while left > 0:
            left -= 1
            start_s = time.perf_counter()
            _ = await producer.send(Message(topic, body))
            waits_s.append(time.perf_counter() - start_s)

    settings = ProducerSettings(topics=(topic,))
    async with Producer(PRODUCER_GROUP, client=call.settings, settings=settings) as producer:
        start_s = time.perf_counter()
        await asyncio.gather(*(worker(producer) for _ in range(min(in_flight, count))))
        seconds = time.perf_counter() - start_s
    return _row("send", count, size, seconds, waits_s)


async def _read(reader: TopicReader, starts: dict[MessageQueue, int], count: int, size: int) -> Row:
    spans = {
        queue: span
        for queue, span in (await reader.spans(Target(TargetKind.LATEST))).items()
        if span.stop > starts.get(queue, 0)
    }
    done = 0
    start_s = time.perf_counter()
    for queue, span in spans.items():
        offset = starts.get(queue, 0)
        while offset < span.stop and done < count:
            before = offset
            messages, offset = await reader.pull(queue, offset)
            done += len(messages)
            if offset <= before:
                break
    return _row("read", done, size, time.perf_counter() - start_s, [])


def _row(phase: str, count: int, size: int, seconds: float, waits_s: list[float]) -> Row:
    waits_s.sort()

    def percentile(share: float) -> str | None:
        if not waits_s:
            return None
        return f"{waits_s[min(int(len(waits_s) * share), len(waits_s) - 1)] * 1000:.2f} ms"

    return {
        "phase": phase,
        "messages": count,
        "bytes": count * size,
        "seconds": round(seconds, 3),
        "per_second": round(count / seconds) if seconds > 0 else 0,
        "mb_per_second": round(count * size / seconds / 1e6, 2) if seconds > 0 else 0.0,
        "p50": percentile(0.50),
        "p99": percentile(0.99),
    }
