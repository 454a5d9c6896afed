"""One piece of work of our client in a process of its own; prints what it took as JSON.

usage: client_work.py {produce,consume,latency} NAME_SERVER TOPIC [--seconds 5] [--warm 2]
                      [--in-flight 64] [--body 128] [--batch 32] [--rate 200] [--group G]
                      [--loop {uvloop,asyncio}] [--profile FILE]
"""

import argparse
import asyncio
import cProfile
import json
import pstats
import time
from collections.abc import Callable, Coroutine
from pathlib import Path

import uvloop
from load import percentile

from downrange.client.consumer_settings import PushConsumerSettings
from downrange.client.listeners import Batch, ConcurrentContext
from downrange.client.message import Message
from downrange.client.producer import Producer
from downrange.client.push_consumer import PushConsumer
from downrange.client.settings import ClientSettings
from downrange.client.start_offset import ConsumeFromWhere
from downrange.client.wakeup import pause

Figures = dict[str, float]
STAMP_BYTES = 8
WAIT_S_MAX = 60.0
POLL_S = 0.02
PROFILE_ROWS = 30


class Meter:
    """Messages, time and processor time since it was set to nothing."""

    def __init__(self) -> None:
        self.count = 0
        self.start()

    def start(self) -> None:
        """From now on."""
        self.count = 0
        self._start_s, self._cpu_s = time.perf_counter(), time.process_time()

    def figures(self) -> Figures:
        """Until now."""
        took_s = time.perf_counter() - self._start_s
        cpu_us = (time.process_time() - self._cpu_s) * 1e6
        return {"rate": self.count / took_s, "cpu_us": cpu_us / max(self.count, 1)}


def _client(options: argparse.Namespace) -> ClientSettings:
    return ClientSettings(name_servers=options.name_server, client_ip="127.0.0.1")


async def produce(options: argparse.Namespace) -> Figures:
    """So many coroutines, each of which waits for its receipt before it sends again."""
    meter = Meter()
    body = bytes(ord("a") + at % 26 for at in range(options.body))
    async with Producer("benchmark-producers", client=_client(options)) as producer:
        await producer.send(Message(options.topic, body))
        is_over = False

        async def send() -> None:
            while not is_over:
                await producer.send(Message(options.topic, body))
                meter.count += 1

        tasks = [asyncio.ensure_future(send()) for _ in range(options.in_flight)]
        await pause(options.warm)
        meter.start()
        await pause(options.seconds)
        figures = meter.figures()
        is_over = True
        await asyncio.gather(*tasks)
    return figures


async def consume(options: argparse.Namespace) -> Figures:
    """From the first message of a backlog on; the listener only counts."""
    meter = Meter()

    async def listen(batch: Batch, _context: ConcurrentContext) -> None:
        meter.count += len(batch)

    settings = PushConsumerSettings(
        consume_from_where=ConsumeFromWhere.FIRST_OFFSET, consume_batch_size=options.batch
    )
    consumer = PushConsumer(options.group, client=_client(options), settings=settings)
    consumer.subscribe(options.topic)
    consumer.listen(listen)
    async with consumer, asyncio.timeout(WAIT_S_MAX):
        while not meter.count:
            await pause(POLL_S)
        await pause(options.warm)
        meter.start()
        await pause(options.seconds)
        return meter.figures()


async def latency(options: argparse.Namespace) -> Figures:
    """From a send to the listener, both in this process."""
    times: list[float] = []

    async def listen(batch: Batch, _context: ConcurrentContext) -> None:
        now_ns = time.perf_counter_ns()
        times.extend(now_ns - int.from_bytes(one.body[:STAMP_BYTES], "big") for one in batch)

    rest = bytes(options.body - STAMP_BYTES)
    async with Producer("benchmark-producers", client=_client(options)) as producer:
        await producer.send(Message(options.topic, bytes(options.body)))
        consumer = PushConsumer(options.group, client=_client(options))
        consumer.subscribe(options.topic)
        consumer.listen(listen)
        async with consumer:
            await pause(2)
            warm, count = round(options.warm * options.rate), round(options.seconds * options.rate)
            meter = Meter()
            next_s = time.perf_counter()
            for number in range(warm + count):
                if number == warm:
                    times.clear()
                    meter.start()
                next_s += 1 / options.rate
                await pause(max(next_s - time.perf_counter(), 0))
                stamp = time.perf_counter_ns().to_bytes(STAMP_BYTES, "big")
                await producer.send(Message(options.topic, stamp + rest))
            async with asyncio.timeout(WAIT_S_MAX):
                while len(times) < count:
                    await pause(POLL_S)
            meter.count = count
            cpu_us = meter.figures()["cpu_us"]
    p50_ms, p99_ms = percentile(times, 0.5) / 1e6, percentile(times, 0.99) / 1e6
    return {"p50_ms": p50_ms, "p99_ms": p99_ms, "cpu_us": cpu_us}


WORK: dict[str, Callable[[argparse.Namespace], Coroutine[None, None, Figures]]] = {
    "produce": produce,
    "consume": consume,
    "latency": latency,
}


def main() -> None:
    """Do it and print the figures."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("work", choices=WORK)
    parser.add_argument("name_server")
    parser.add_argument("topic")
    parser.add_argument("--seconds", type=float, default=5)
    parser.add_argument("--warm", type=float, default=2)
    parser.add_argument("--in-flight", type=int, default=64)
    parser.add_argument("--body", type=int, default=128)
    parser.add_argument("--batch", type=int, default=32)
    parser.add_argument("--rate", type=float, default=200)
    parser.add_argument("--group", default="benchmark-consumers")
    parser.add_argument("--loop", choices=("uvloop", "asyncio"), default="uvloop")
    parser.add_argument("--profile", type=Path)
    options = parser.parse_args()
    factory = uvloop.new_event_loop if options.loop == "uvloop" else asyncio.new_event_loop
    profiler = cProfile.Profile() if options.profile else None
    with asyncio.Runner(loop_factory=factory) as runner:
        if profiler is not None:
            profiler.enable()
        figures = runner.run(WORK[options.work](options))
        if profiler is not None:
            profiler.disable()
    if profiler is not None:
        with options.profile.open("w", encoding="utf-8") as sink:
            report = pstats.Stats(profiler, stream=sink)
            report.strip_dirs().sort_stats("tottime").print_stats(PROFILE_ROWS)
    print(json.dumps(figures))


if __name__ == "__main__":
    main()
