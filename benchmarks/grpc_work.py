"""The producer's work by the gRPC client of PyPI, in a process and environment of its own.

usage: grpc_work.py {awaiting,threads} PROXY TOPIC [--seconds 5] [--warm 3] [--in-flight 64]
                    [--body 128]

`awaiting` has coroutines that wait for the client's futures, `threads` as many threads that block.
Prints messages a second and microseconds of processor time a message as JSON.
"""

import argparse
import asyncio
import json
import threading
import time
from importlib.metadata import version

from rocketmq import (  # type: ignore[import-not-found]  # only in its own environment
    ClientConfiguration,
    Credentials,
    Message,
    Producer,
)


class Work:
    """So many messages under way; counts those whose receipt has come."""

    def __init__(self, options: argparse.Namespace) -> None:
        self._topic = options.topic
        self._body = bytes(ord("a") + at % 26 for at in range(options.body))
        self._in_flight = options.in_flight
        self._warm_s, self._seconds = options.warm, options.seconds
        self.count = 0
        self.is_over = False
        self.producer = Producer(
            ClientConfiguration(options.proxy, Credentials()), (options.topic,)
        )

    def message(self) -> Message:
        """The next message."""
        message = Message()
        message.topic, message.body = self._topic, self._body
        return message

    def figures(self, count: int, started: tuple[float, float]) -> dict[str, float]:
        """Since then."""
        took_s, cpu_s = time.perf_counter() - started[0], time.process_time() - started[1]
        done = self.count - count
        return {"rate": done / took_s, "cpu_us": cpu_s / max(done, 1) * 1e6}

    async def awaiting(self) -> dict[str, float]:
        """With coroutines."""

        async def send() -> None:
            while not self.is_over:
                await asyncio.wrap_future(self.producer.send_async(self.message()))
                self.count += 1

        tasks = [asyncio.ensure_future(send()) for _ in range(self._in_flight)]
        await asyncio.sleep(self._warm_s)  # noqa: TID251 - nothing of ours is installed here
        count, started = self.count, (time.perf_counter(), time.process_time())
        await asyncio.sleep(self._seconds)  # noqa: TID251 - likewise
        figures = self.figures(count, started)
        self.is_over = True
        await asyncio.gather(*tasks)
        return figures

    def threads(self) -> dict[str, float]:
        """With threads."""
        counts = [0] * self._in_flight

        def send(number: int) -> None:
            while not self.is_over:
                self.producer.send(self.message())
                counts[number] += 1

        threads = [threading.Thread(target=send, args=(at,)) for at in range(self._in_flight)]
        for thread in threads:
            thread.start()
        time.sleep(self._warm_s)
        before, started = sum(counts), (time.perf_counter(), time.process_time())
        time.sleep(self._seconds)
        self.count = sum(counts)
        figures = self.figures(before, started)
        self.is_over = True
        for thread in threads:
            thread.join()
        return figures


def main() -> None:
    """Do it and print the figures."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("way", choices=("awaiting", "threads"))
    parser.add_argument("proxy")
    parser.add_argument("topic")
    parser.add_argument("--seconds", type=float, default=5)
    parser.add_argument("--warm", type=float, default=3)
    parser.add_argument("--in-flight", type=int, default=64)
    parser.add_argument("--body", type=int, default=128)
    options = parser.parse_args()
    work = Work(options)
    work.producer.startup()
    figures = asyncio.run(work.awaiting()) if options.way == "awaiting" else work.threads()
    print(json.dumps({**figures, "version": version("rocketmq-python-client")}), flush=True)
    work.producer.shutdown()


if __name__ == "__main__":
    main()
