"""More queues than a process may have files: none holds up another, and the broker starts again."""

import asyncio
import os
import time
from pathlib import Path

import pytest
from faults.broker.cluster import Cluster
from faults.broker.peers import Peer, RecordProperty, own_memory_kib, pause, worked_seconds
from faults.stores import trial

from downrange.model.topics import QUEUE_NUMS_MAX, TopicConfig
from downrange.protocol.bodies.groups import TopicConfigList
from downrange.protocol.bodies.json_body import encode_body
from downrange.protocol.record import decode_records
from downrange.protocol.request_codes import RequestCode
from downrange.protocol.response_codes import ResponseCode
from downrange.store import dispatch_backlog

OPEN_FILES_MAX = 1024
WINDOW = 64
PROBE_EVERY = 500  # sends to the wide topics between two messages to the ordinary one
# RocketMQ's file sizes: the files are sparse, and only what is in use may take space.
USUAL_FILES = {
    "mappedFileSizeConsumeQueue": str(20 * 300_000),
    "mappedFileSizeCommitLog": str(64 << 20),
}
REFUSED_S_MAX = 300.0  # more messages than may wait to become visible are refused for a while
REFUSED_PAUSE_S = 0.2
BLOCK_BYTES = 512
BYTES_PER_QUEUE_MAX = 10 * 1024  # a block each of the file, its directory and the file system's own


class ManyQueues:
    """Topics with very many queues, and an ordinary one beside them."""

    def __init__(self, cluster: Cluster, count: int) -> None:
        self._cluster = cluster
        self._count = count
        self._probes = 0
        self.refused_count = 0
        self.figures: dict[str, str] = {}

    async def run(self) -> None:
        """Fill the queues, then start again after a graceful stop and after a kill."""
        self._cluster.start_names()
        broker = await asyncio.to_thread(self._cluster.start_broker)
        peer = Peer(broker.address)
        answer = await peer.call(*self._topics(), timeout_s=120)
        assert answer.code == ResponseCode.SUCCESS, answer
        start_s = time.perf_counter()
        await self._send_to_all(peer)
        rate = self._count / (time.perf_counter() - start_s)
        self.figures["sends"] = f"{rate:.0f}/s, {self.refused_count} refused for a while"
        await self._check(peer)
        self._note("filled", start_s)
        peer.close()
        start_s = time.perf_counter()
        await asyncio.to_thread(broker.stop)
        self.figures["stop"] = f"{time.perf_counter() - start_s:.1f}s"
        await self._start_again("after a graceful stop")
        self._cluster.broker.kill()
        await self._start_again("after kill -9")
        self.figures["disk"] = f"{_disk_bytes(self._cluster.store / 'consumequeue') >> 20} MiB"
        start_s = time.perf_counter()
        await asyncio.to_thread(self._cluster.broker.stop)
        self.figures["second stop"] = f"{time.perf_counter() - start_s:.1f}s"

    def _topics(self) -> tuple[int, None, bytes]:
        wide = range(0, self._count, QUEUE_NUMS_MAX)
        names = [(_wide(first)[0], min(self._count - first, QUEUE_NUMS_MAX)) for first in wide]
        names.append(("ordinary", 8))
        configs = tuple(
            TopicConfig(topic_name=name, read_queue_nums=count, write_queue_nums=count)
            for name, count in names
        )
        body = encode_body(TopicConfigList(topic_config_list=configs))
        return RequestCode.UPDATE_AND_CREATE_TOPIC_LIST, None, body

    async def _send_to_all(self, peer: Peer) -> None:
        sends: set[asyncio.Task[None]] = set()

        async def send(number: int) -> None:
            topic, queue_id = _wide(number)
            async with asyncio.timeout(REFUSED_S_MAX):
                while True:
                    answer = await peer.send(topic, b"%d" % number, queue_id=queue_id, timeout_s=60)
                    if answer.code != ResponseCode.SERVICE_NOT_AVAILABLE:
                        break
                    self.refused_count += 1
                    await pause(REFUSED_PAUSE_S)
            assert answer.code == ResponseCode.SUCCESS, answer

        for number in range(self._count):
            sends.add(asyncio.ensure_future(send(number)))
            if len(sends) >= WINDOW:
                done, sends = await asyncio.wait(sends, return_when=asyncio.FIRST_COMPLETED)
                for task in done:
                    task.result()
            if number % PROBE_EVERY == 0:
                await self._probe(peer)
        await asyncio.gather(*sends)

    async def _probe(self, peer: Peer) -> None:
        """A message of the ordinary topic is visible as soon as its sender has the answer."""
        number = self._probes
        self._probes += 1
        answer = await peer.send("ordinary", b"%d" % number)
        if answer.code == ResponseCode.SERVICE_NOT_AVAILABLE:
            self._probes -= 1
            return  # as everybody is while too many messages wait to become visible
        assert answer.code == ResponseCode.SUCCESS, answer
        assert await _body_at(peer, "ordinary", 0, number) == b"%d" % number

    async def _check(self, peer: Peer) -> None:
        """Messages of queues all over the wide topics are there, those of the ordinary one, too."""
        for number in {*range(0, self._count, max(self._count // 200, 1)), self._count - 1}:
            body = await _body_at(peer, *_wide(number), 0, suspend_ms=60_000)
            assert body == b"%d" % number, number
        for number in range(self._probes):
            assert await _body_at(peer, "ordinary", 0, number) == b"%d" % number

    async def _start_again(self, when: str) -> None:
        start_s = time.perf_counter()
        broker = await asyncio.to_thread(self._cluster.start_broker)
        peer = Peer(broker.address)
        self._note(when, start_s)
        await self._check(peer)
        await self._probe(peer)
        for number in range(0, self._count, max(self._count // 50, 1)):  # and can be written
            topic, queue_id = _wide(number)
            answer = await peer.send(topic, b"more", queue_id=queue_id, timeout_s=60)
            assert answer.code == ResponseCode.SUCCESS, answer
        peer.close()

    def _note(self, when: str, start_s: float) -> None:
        pid = self._cluster.broker.process.pid
        descriptors = len(os.listdir(f"/proc/{pid}/fd"))  # noqa: PTH208 - only their number
        assert descriptors < OPEN_FILES_MAX
        self.figures[when] = (
            f"{time.perf_counter() - start_s:.1f}s ({worked_seconds(pid):.1f}s of work, "
            f"{own_memory_kib(pid) >> 10} MiB, {descriptors} descriptors)"
        )


def _wide(number: int) -> tuple[str, int]:
    """Topic and queue of one of the many; a topic has a limited number."""
    return f"wide-{number // QUEUE_NUMS_MAX}", number % QUEUE_NUMS_MAX


async def _body_at(
    peer: Peer, topic: str, queue_id: int, offset: int, *, suspend_ms: int = 0
) -> bytes:
    answer = await peer.pull(
        topic, offset, queue_id=queue_id, count=1, suspend_ms=suspend_ms, timeout_s=90
    )
    assert answer.code == ResponseCode.SUCCESS, (topic, queue_id, offset, answer)
    return bytes(next(decode_records(answer.body or b"")).body)


def _disk_bytes(folder: Path) -> int:
    return sum(path.lstat().st_blocks * BLOCK_BYTES for path in folder.rglob("*"))


def fill(folder: Path, count: int, record_property: RecordProperty) -> None:
    with Cluster(folder, USUAL_FILES, open_files_max=OPEN_FILES_MAX) as cluster:
        queues = ManyQueues(cluster, count)
        try:
            asyncio.run(queues.run())
        finally:
            seen = ", ".join(f"{name}: {value}" for name, value in queues.figures.items())
            record_property("seen", seen)
            print(f"{count} queues: {seen}")  # noqa: T201 - what the long form is run for
        cluster.check_logs()
        if count < dispatch_backlog.COUNT_MAX:
            assert queues.refused_count == 0
            assert "stalled" not in cluster.logs()
        used = _disk_bytes(cluster.store / "consumequeue")
        assert used <= count * BYTES_PER_QUEUE_MAX + (8 << 20)


def test_ten_thousand_queues_with_a_thousand_descriptors_stop_nobody(
    scratch: Path, record_property: RecordProperty
) -> None:
    with trial("test_ten_thousand_queues_with_a_thousand_descriptors_stop_nobody"):
        fill(scratch, 10_000, record_property)


@pytest.mark.long
def test_a_hundred_thousand_queues_with_a_thousand_descriptors_stop_nobody(
    scratch: Path, record_property: RecordProperty
) -> None:
    with trial("test_a_hundred_thousand_queues_with_a_thousand_descriptors_stop_nobody"):
        fill(scratch, 100_000, record_property)
