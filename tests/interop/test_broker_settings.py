"""One broker.conf for both systems: the same places on the disk, the same keys, the same names."""

import asyncio
import contextlib
from collections.abc import Iterator, Mapping
from pathlib import Path

import processes
import pytest
from faults.broker.peers import Peer, records
from faults.broker.routes import brokers_of
from interop import apache

from downrange.app.broker import read_settings
from downrange.broker.java_keys import JAVA_KEYS
from downrange.protocol.request_codes import RequestCode
from downrange.protocol.response_codes import ResponseCode
from downrange.runtime.property_text import read_properties

pytestmark = pytest.mark.interop

TOPIC = "spread"
LOG_FILE_BYTES = 1 << 20
BODY_BYTES = 8_000
MESSAGES = 400  # fill three files of the log
REFUSED_SECONDS_MAX = 60.0


def bodies(first: int) -> list[bytes]:
    return [b"%08d" % number * (BODY_BYTES // 8) for number in range(first, first + MESSAGES)]


@contextlib.contextmanager
def broker(which: str, folder: Path, names: str, settings: Mapping[str, str]) -> Iterator[str]:
    """A broker of either make on the store of the folder; its address."""
    store = folder / "ours" / "store"
    if which == "ours":
        with processes.start_broker(folder / "ours", names, settings) as server:
            yield server.address
    else:
        plan = apache.plan_broker(folder / "apache", store, names, settings)
        with apache.start_broker(plan) as server:
            yield server.address


async def send_and_read(address: str, first: int) -> list[bytes]:
    """Send messages and read everything that the queue has."""
    peer = Peer(address)
    for body in bodies(first):
        answer = await peer.send(TOPIC, body)
        assert answer.code == ResponseCode.SUCCESS, answer
    found: list[bytes] = []
    async with asyncio.timeout(REFUSED_SECONDS_MAX):
        while len(found) < first + MESSAGES:
            answer = await peer.pull(TOPIC, len(found))
            found += [record.body for record in records(answer)]
    peer.close()
    return found


@pytest.mark.parametrize("order", [("apache", "ours", "apache"), ("ours", "apache", "ours")])
def test_a_log_over_two_paths_goes_from_one_broker_to_the_other(
    tmp_path: Path, order: tuple[str, ...]
) -> None:
    paths = (tmp_path / "disk-a" / "log", tmp_path / "disk-b" / "log")
    settings = {
        "brokerName": "broker-a",
        "storePathCommitLog": ",".join(map(str, paths)),
        "mappedFileSizeCommitLog": str(LOG_FILE_BYTES),
        "diskMaxUsedSpaceRatio": "95",
        "waitTimeMillsInSendQueue": "60000",
    }
    with processes.start_name_server(tmp_path / "names") as names:
        for turn, which in enumerate(order):
            with broker(which, tmp_path, names.address, settings) as address:
                found = asyncio.run(send_and_read(address, turn * MESSAGES))
            assert found == [body for past in range(turn + 1) for body in bodies(past * MESSAGES)]
            numbers = {
                path: [int(file.name) // LOG_FILE_BYTES for file in sorted(path.iterdir())]
                for path in paths
            }
            # Even ones here, odd ones there, whoever wrote them.
            for parity, path in enumerate(paths):
                assert len(numbers[path]) > turn
                assert all(number % 2 == parity for number in numbers[path]), numbers
    assert not (tmp_path / "ours" / "store" / "commitlog").exists()


def test_every_key_of_a_running_apache_broker_is_known_and_its_values_are_taken(
    tmp_path: Path,
) -> None:
    async def config(address: str) -> bytes:
        peer = Peer(address)
        answer = await peer.call(RequestCode.GET_BROKER_CONFIG)
        peer.close()
        return answer.body or b""

    settings = {"brokerIP2": "10.9.8.7"}
    with (
        processes.start_name_server(tmp_path / "names") as names,
        broker("apache", tmp_path, names.address, settings) as address,
    ):
        text = asyncio.run(config(address))
    theirs = {entry.key: entry.value for entry in read_properties(text)}
    assert len(theirs) > 400
    assert sorted(theirs.keys() - JAVA_KEYS) == []
    # All its settings, defaults for the most part, are a broker.conf that we start with.
    file = tmp_path / "all.conf"
    file.write_bytes(text)
    ours = read_settings(file)
    assert ours.broker.ha_address(0) == f"10.9.8.7:{theirs['haListenPort']}"
    (path,) = ours.store_files.log_paths.everywhere
    assert str(path) == theirs["storePathCommitLog"]


def test_a_second_apache_broker_of_the_same_name_is_refused_and_lives_on(tmp_path: Path) -> None:
    with (
        processes.start_name_server(tmp_path / "names") as names,
        broker("ours", tmp_path, names.address, {"brokerName": "broker-a"}) as ours,
    ):
        second = apache.plan_broker(tmp_path / "second", tmp_path / "second-store", names.address)
        with apache.start_broker(second) as server:
            names.wait_for(f"already registered by the live broker at {ours}", REFUSED_SECONDS_MAX)
            assert asyncio.run(brokers_of(names.address, "TBW102")) == [ours]
            assert server.process.poll() is None
        # It has told the name server that it goes, as a Java broker does whatever happened.
        assert asyncio.run(brokers_of(names.address, "TBW102")) == [ours]
