"""Thousands of wrong frames: the server stays up, the others are served, memory stays flat."""

import asyncio
import contextlib
import socket
import struct
from collections import Counter
from pathlib import Path

import pytest
from faults.broker.cluster import Cluster
from faults.broker.mutation import FENCE_CODE, bad_frame, can_be_read
from faults.broker.peers import (
    CALL_SECONDS_MAX,
    Peer,
    RecordProperty,
    own_memory_kib,
    pause,
    records,
)
from faults.stores import Trial, trial

from downrange.protocol.command import request
from downrange.protocol.command_codec import decode_command, encode_command
from downrange.protocol.frame import FrameDecoder
from downrange.protocol.headers.topic import GetRouteRequest
from downrange.protocol.request_codes import RequestCode

FRAMES = 10_000
LONG_FRAMES = 300_000
CONNECTIONS = 8  # at the same time
FRAMES_MAX = 30  # on one connection
FENCE_OPAQUE = 0x7EEEEEEE
QUIET_SECONDS = 0.05  # an answer of nothing: the server waits for the rest of a frame
MEMORY_GROWTH_KIB_MAX = 40_000


class Storm:
    """Sends wrong frames over and over and counts what comes back."""

    def __init__(self, address: str, server: str, rng: Trial) -> None:
        self._address = address
        self._server = server
        self._rng = rng
        self.sent = 0
        self.seen: Counter[str] = Counter()

    async def send(self, count: int) -> None:
        """This many frames, over several connections at a time."""
        end = self.sent + count
        await asyncio.gather(*(self._send_until(end) for _ in range(CONNECTIONS)))

    async def _send_until(self, end: int) -> None:
        while self.sent < end:
            whole: list[bytes] = []
            for _ in range(self._rng.randrange(1, FRAMES_MAX)):
                frame = bad_frame(self._rng, self._server)
                if can_be_read(frame):
                    whole.append(frame)
                else:  # nothing behind it is read, so it comes last
                    await self._send_on_a_connection([*whole[:2], frame], is_broken=True)
            await self._send_on_a_connection(whole, is_broken=False)

    async def _send_on_a_connection(self, frames: list[bytes], *, is_broken: bool) -> None:
        self.sent += len(frames)
        self.seen["connections"] += 1
        host, _, port = self._address.rpartition(":")
        reader, writer = await asyncio.open_connection(host, int(port))
        if self._rng.random() < 0.3:  # will be gone without a goodbye
            option = (socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            writer.get_extra_info("socket").setsockopt(*option)
        fence = encode_command(request(FENCE_CODE, opaque=FENCE_OPAQUE))
        writer.write(b"".join([*frames, fence]))
        await self._read_answers(reader, QUIET_SECONDS if is_broken else CALL_SECONDS_MAX)
        writer.transport.abort()
        with contextlib.suppress(ConnectionError):
            await writer.wait_closed()

    async def _read_answers(self, reader: asyncio.StreamReader, seconds_max: float) -> None:
        decoder = FrameDecoder()
        while True:
            try:
                async with asyncio.timeout(seconds_max):
                    data = await reader.read(1 << 18)
            except TimeoutError:
                assert seconds_max == QUIET_SECONDS, "no answer to what is well-formed"
                self.seen["half frames"] += 1
                return
            except ConnectionError:
                data = b""
            if not data:
                self.seen["closed"] += 1
                return
            decoder.feed(data)
            while (frame := decoder.next_frame()) is not None:
                command = decode_command(frame)
                if command.opaque == FENCE_OPAQUE and command.is_response:
                    self.seen["all answered"] += 1
                    return
                kind = f"code {command.code}" if command.is_response else "requests of the server"
                self.seen[kind] += 1


class Neighbour:
    """Goes on with its own business at the broker all the while."""

    def __init__(self, address: str) -> None:
        self._peer = Peer(address)
        self.rounds = 0

    async def run(self, end: asyncio.Event) -> None:
        """Send, pull and compare until told to end."""
        while not end.is_set():
            body = f"message {self.rounds}".encode()
            answer = await self._peer.send("neighbour", body)
            assert answer.code == 0, answer
            answer = await self._peer.pull("neighbour", self.rounds)
            assert [record.body for record in records(answer)] == [body]
            self.rounds += 1
            await pause(0.005)
        self._peer.close()


class Asker:
    """Goes on asking a name server for a route all the while."""

    def __init__(self, address: str) -> None:
        self._peer = Peer(address)
        self.rounds = 0

    async def run(self, end: asyncio.Event) -> None:
        """Ask until told to end."""
        while not end.is_set():
            header = GetRouteRequest(topic="TBW102")
            answer = await self._peer.call(RequestCode.GET_ROUTEINFO_BY_TOPIC, header)
            assert answer.code in {0, 17}, answer
            self.rounds += 1
            await pause(0.005)
        self._peer.close()


async def storm_beside(
    neighbour: Neighbour | Asker, storm: Storm, process_id: int, count: int
) -> str:
    """A tenth of the storm, then the rest, beside a neighbour; returns what was seen."""
    end = asyncio.Event()
    beside = asyncio.ensure_future(neighbour.run(end))
    await storm.send(count // 10)
    before_kib = own_memory_kib(process_id)
    await storm.send(count - count // 10)
    after_kib = own_memory_kib(process_id)
    end.set()
    await beside
    seen = (
        f"frames={storm.sent} memory_before={before_kib}KiB after={after_kib}KiB "
        f"calls_beside={neighbour.rounds} {dict(sorted(storm.seen.items()))}"
    )
    assert after_kib - before_kib < MEMORY_GROWTH_KIB_MAX, seen
    return seen


def storm_a_broker(folder: Path, rng: Trial, count: int) -> str:
    with Cluster(folder) as cluster:
        cluster.start_names()
        broker = cluster.start_broker()
        storm = Storm(broker.address, "broker", rng)
        neighbour = Neighbour(broker.address)
        seen = asyncio.run(storm_beside(neighbour, storm, broker.process.pid, count))
        assert broker.process.poll() is None
        broker.stop()
        cluster.check_logs()
        assert broker.process.returncode == 0
    return seen


def storm_a_name_server(folder: Path, rng: Trial, count: int) -> str:
    with Cluster(folder) as cluster:
        names = cluster.start_names()
        storm = Storm(names.address, "nameserver", rng)
        seen = asyncio.run(storm_beside(Asker(names.address), storm, names.process.pid, count))
        names.stop()
        cluster.check_logs()
        assert names.process.returncode == 0
    return seen


def test_a_broker_stands_ten_thousand_wrong_frames(
    scratch: Path, record_property: RecordProperty
) -> None:
    with trial("test_a_broker_stands_ten_thousand_wrong_frames") as rng:
        record_property("seen", storm_a_broker(scratch, rng, FRAMES))


def test_a_name_server_stands_ten_thousand_wrong_frames(
    scratch: Path, record_property: RecordProperty
) -> None:
    with trial("test_a_name_server_stands_ten_thousand_wrong_frames") as rng:
        record_property("seen", storm_a_name_server(scratch, rng, FRAMES))


@pytest.mark.long
def test_servers_stand_three_hundred_thousand_wrong_frames(
    scratch: Path, record_property: RecordProperty
) -> None:
    with trial("test_servers_stand_three_hundred_thousand_wrong_frames") as rng:
        record_property("seen", storm_a_broker(scratch / "1", rng, LONG_FRAMES))
        record_property("seen", storm_a_name_server(scratch / "2", rng, LONG_FRAMES))
