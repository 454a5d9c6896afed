"""Clients that read late, stop in mid-frame or vanish: memory is bounded, the others live."""

import asyncio
import contextlib
import socket
import time
from pathlib import Path

from faults.broker.cluster import Cluster
from faults.broker.peers import Peer, RecordProperty, own_memory_kib, pause, pull_header, records
from faults.stores import trial

from downrange.protocol.command import request
from downrange.protocol.command_codec import decode_command, encode_command
from downrange.protocol.frame import FrameDecoder
from downrange.protocol.headers.fields import encode_header
from downrange.protocol.request_codes import RequestCode
from downrange.protocol.response_codes import ResponseCode

LARGE_FILES = {"mappedFileSizeCommitLog": str(16 << 20)}
MESSAGE_BYTES = 60_000
MESSAGES = 40
PULLS = 1_000  # each is answered with some 250 KB
SLOW_READERS = 2
MEMORY_GROWTH_KIB_MAX = 60_000  # for both: twice the buffer of a connection and what is on its way
HALF_OPEN = 200
BESIDE_SECONDS_MAX = 15.0  # seen: milliseconds; a busy machine takes longer
TCP_REPAIR = 19  # Linux: a socket in this state is closed without a word to the other end


def opened(address: str) -> socket.socket:
    host, _, port = address.rpartition(":")
    peer = socket.socket()
    peer.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 64 * 1024)
    peer.connect((host, int(port)))
    peer.settimeout(20)
    return peer


def pulls(count: int) -> bytes:
    fields = encode_header(pull_header("large", 0, suspend_ms=0))
    return b"".join(
        encode_command(request(RequestCode.PULL_MESSAGE, opaque=number, ext_fields=fields))
        for number in range(count)
    )


def read_answers(peer: socket.socket, count: int) -> int:
    """Read that many answers; returns how many bytes they had."""
    decoder = FrameDecoder()
    size = number = 0
    while number < count:
        decoder.feed(peer.recv(1 << 18))
        while (frame := decoder.next_frame()) is not None:
            answer = decode_command(frame)
            assert (answer.opaque, answer.code) == (number, ResponseCode.SUCCESS)
            size += len(answer.body or b"")
            number += 1
    return size


async def beside(peer: Peer, number: int) -> float:
    """A message in and out, in time; returns how long it took."""
    start_s = time.monotonic()
    body = f"{number}".encode()
    assert (await peer.send("beside", body)).code == 0
    assert [one.body for one in records(await peer.pull("beside", number))] == [body]
    took_s = time.monotonic() - start_s
    assert took_s < BESIDE_SECONDS_MAX
    return took_s


async def slow_readers(cluster: Cluster) -> str:
    cluster.start_names()
    broker = await asyncio.to_thread(cluster.start_broker)
    good = Peer(broker.address)
    for _ in range(MESSAGES):
        assert (await good.send("large", bytes(MESSAGE_BYTES))).code == 0
    await beside(good, 0)
    before_kib = own_memory_kib(broker.process.pid)
    with contextlib.ExitStack() as stack:
        slow = [stack.enter_context(opened(broker.address)) for _ in range(SLOW_READERS)]
        for peer in slow:
            peer.sendall(pulls(PULLS))
        took_s = [await beside(good, number) for number in range(1, 50)]
        during_kib = own_memory_kib(broker.process.pid)
        assert during_kib - before_kib < MEMORY_GROWTH_KIB_MAX
        # One reads after all and gets everything, the other one never does.
        size = await asyncio.to_thread(read_answers, slow[0], PULLS)
        assert size > PULLS * 200_000
    await beside(good, 50)
    good.close()
    broker.stop()
    cluster.check_logs()
    return (
        f"asked_for={SLOW_READERS * size >> 20}MiB memory_before={before_kib}KiB "
        f"during={during_kib}KiB slowest_call_beside={max(took_s) * 1000:.0f}ms"
    )


def vanish(peer: socket.socket) -> bool:
    """Close without a word where the system allows it; False if it had to be said."""
    try:
        peer.setsockopt(socket.IPPROTO_TCP, TCP_REPAIR, 1)
    except OSError:
        return False
    finally:
        peer.close()
    return True


async def half_open(cluster: Cluster) -> str:
    cluster.start_names()
    broker = await asyncio.to_thread(cluster.start_broker)
    good = Peer(broker.address)
    await beside(good, 0)
    frame = pulls(1)
    parked = encode_header(pull_header("beside", 1_000_000, suspend_ms=20_000))
    waiting = encode_command(request(RequestCode.PULL_MESSAGE, opaque=1, ext_fields=parked))
    peers = []
    for number in range(HALF_OPEN):
        peer = opened(broker.address)
        peer.sendall(waiting + frame[: 1 + number % (len(frame) - 1)])
        peers.append(peer)
    took_s = [await beside(good, number) for number in range(1, 20)]
    silent = sum(vanish(peer) for peer in peers[: HALF_OPEN // 2])
    took_s += [await beside(good, number) for number in range(20, 40)]
    for peer in peers[HALF_OPEN // 2 :]:
        peer.close()
    await pause(0.1)
    await beside(good, 40)
    good.close()
    broker.stop()
    cluster.check_logs()
    return (
        f"half_open={HALF_OPEN} vanished_without_a_word={silent} "
        f"slowest_call_beside={max(took_s) * 1000:.0f}ms"
    )


def test_a_client_that_does_not_read_costs_a_bounded_amount_of_memory(
    scratch: Path, record_property: RecordProperty
) -> None:
    name = "test_a_client_that_does_not_read_costs_a_bounded_amount_of_memory"
    with trial(name), Cluster(scratch, LARGE_FILES) as cluster:
        record_property("seen", asyncio.run(slow_readers(cluster)))


def test_half_open_clients_harm_nobody(scratch: Path, record_property: RecordProperty) -> None:
    with trial("test_half_open_clients_harm_nobody"), Cluster(scratch) as cluster:
        record_property("seen", asyncio.run(half_open(cluster)))
