"""Offsets in memory, at brokers and in a file."""

import asyncio
import errno
from pathlib import Path

import pytest

from downrange.client.errors import BrokerUnreachableError, RocketMQError
from downrange.client.offset_store import LocalOffsetStore, RemoteOffsetStore, offsets_path
from downrange.model.topics import MessageQueue
from downrange.runtime.blocking import InLine
from downrange.runtime.disk import Disk
from downrange.testing.faulty_disk import FaultyDisk

A0, A1, B3 = (
    MessageQueue("orders", "broker-a", 0),
    MessageQueue("orders", "broker-a", 1),
    MessageQueue("orders", "broker-b", 3),
)
JAVA_FILE = Path(__file__).parent / "offsets_java_5_5.json"


class Brokers:
    """Brokers that keep offsets and can be away."""

    def __init__(self) -> None:
        self.offsets: dict[MessageQueue, int] = {}
        self.is_away = False
        self.waits: list[bool] = []

    async def query_offset(self, queue: MessageQueue) -> int | None:
        if self.is_away:
            raise BrokerUnreachableError("away")
        return self.offsets.get(queue)

    async def commit_offset(self, queue: MessageQueue, offset: int, *, wait: bool) -> None:
        if self.is_away:
            raise BrokerUnreachableError("away")
        self.waits.append(wait)
        self.offsets[queue] = offset


def test_an_offset_only_increases_unless_it_is_set() -> None:
    store = RemoteOffsetStore(Brokers(), "g")
    store.update(A0, 5, increase_only=True)
    store.update(A0, 3, increase_only=True)
    assert store.in_memory(A0) == 5
    store.update(A0, 3, increase_only=False)
    assert store.in_memory(A0) == 3
    assert store.in_memory(A1) is None


def test_a_frozen_offset_stays_until_the_queue_is_removed() -> None:
    store = RemoteOffsetStore(Brokers(), "g")
    store.freeze(A0, 7)
    store.update(A0, 100, increase_only=True)
    store.update(A0, 1, increase_only=False)
    assert store.in_memory(A0) == 7
    store.remove(A0)
    store.update(A0, 2, increase_only=True)
    assert store.in_memory(A0) == 2


def test_brokers_are_told_the_offsets_of_the_queues_that_are_ours() -> None:
    brokers = Brokers()
    store = RemoteOffsetStore(brokers, "g")
    store.update(A0, 5, increase_only=True)
    store.update(A1, 6, increase_only=True)
    asyncio.run(store.persist([A0, B3]))
    assert brokers.offsets == {A0: 5}
    asyncio.run(store.persist([A1], wait=True))
    assert (brokers.offsets, brokers.waits) == ({A0: 5, A1: 6}, [False, True])
    assert store.snapshot("orders") == {A0: 5, A1: 6}
    assert store.snapshot("other") == {}


def test_memory_takes_over_what_a_broker_has() -> None:
    brokers = Brokers()
    brokers.offsets[A0] = 42
    store = RemoteOffsetStore(brokers, "g")
    assert asyncio.run(store.stored(A0)) == 42
    assert store.in_memory(A0) == 42
    assert asyncio.run(store.stored(A1)) is None
    assert store.in_memory(A1) is None


def test_a_broker_that_is_away_is_an_error_to_who_asks_and_a_log_line_to_who_persists() -> None:
    brokers = Brokers()
    brokers.is_away = True
    store = RemoteOffsetStore(brokers, "g")
    with pytest.raises(BrokerUnreachableError):
        asyncio.run(store.stored(A0))
    store.update(A0, 5, increase_only=True)
    asyncio.run(store.persist([A0]))
    brokers.is_away = False
    asyncio.run(store.persist([A0]))
    assert brokers.offsets == {A0: 5}


def local(path: Path, disk: Disk | None = None) -> LocalOffsetStore:
    return LocalOffsetStore(disk or Disk(), path, InLine())


def test_a_file_that_java_wrote_is_read_and_written_the_same(tmp_path: Path) -> None:
    path = tmp_path / "offsets.json"
    path.write_bytes(JAVA_FILE.read_bytes())
    store = local(path)

    async def main() -> None:
        assert await store.stored(B3) == 9007199254740993
        assert await store.stored(A0) == 17
        store.update(A0, 18, increase_only=True)
        await store.persist([A0])

    asyncio.run(main())
    assert path.read_bytes() == JAVA_FILE.read_bytes().replace(b"17", b"18")
    assert (tmp_path / "offsets.json.bak").read_bytes() == JAVA_FILE.read_bytes()


def test_the_file_is_made_where_java_looks_for_it(tmp_path: Path) -> None:
    path = offsets_path(str(tmp_path), "10.0.0.1@7", "g")
    assert path == tmp_path / "10.0.0.1@7" / "g" / "offsets.json"
    assert offsets_path("", "c", "g").parts[-4:] == (".rocketmq_offsets", "c", "g", "offsets.json")
    store = local(path)
    store.update(A0, 5, increase_only=True)
    asyncio.run(store.persist([A0]))
    again = local(path)
    assert asyncio.run(again.stored(A0)) == 5
    assert asyncio.run(again.stored(A1)) is None


def test_the_backup_is_read_when_the_file_is_torn(tmp_path: Path) -> None:
    path = tmp_path / "offsets.json"
    path.write_bytes(JAVA_FILE.read_bytes()[:40])
    (tmp_path / "offsets.json.bak").write_bytes(JAVA_FILE.read_bytes())
    assert asyncio.run(local(path).stored(A0)) == 17


def test_a_file_that_nobody_can_read_is_an_error_with_the_remedy(tmp_path: Path) -> None:
    path = tmp_path / "offsets.json"
    path.write_bytes(b"{torn")
    with pytest.raises(RocketMQError, match="repair or remove"):
        asyncio.run(local(path).stored(A0))


def test_a_full_disk_loses_no_offset(tmp_path: Path) -> None:
    path, disk = tmp_path / "offsets.json", FaultyDisk()
    store = local(path, disk)
    store.update(A0, 5, increase_only=True)
    asyncio.run(store.persist([A0]))
    disk.fail("write", errno.ENOSPC, times=1)
    store.update(A0, 6, increase_only=True)
    asyncio.run(store.persist([A0]))
    assert asyncio.run(local(path).stored(A0)) == 5
    asyncio.run(store.persist([A0]))
    assert asyncio.run(local(path).stored(A0)) == 6
