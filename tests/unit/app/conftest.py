"""A small cluster of ours, as processes, for the tests of commands."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from command_line import CommandLine
from processes import Server, start_broker, start_name_server

SETTINGS = {
    "brokerName": "b1",
    "mappedFileSizeCommitLog": str(16 << 20),
    "maxHashSlotNum": "1000",
    "maxIndexNum": "4000",
    "flushDiskType": "ASYNC_FLUSH",
}


@pytest.fixture(scope="module")
def servers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Server, Server]]:
    folder = tmp_path_factory.mktemp("cli")
    with (
        start_name_server(folder / "names") as names,
        start_broker(folder / "broker", names.address, SETTINGS) as broker,
    ):
        yield names, broker


@pytest.fixture
def cli(servers: tuple[Server, Server], tmp_path: Path) -> CommandLine:
    return CommandLine(servers[0].address, tmp_path)
