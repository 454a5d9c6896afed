"""A name server and a broker with small files, processes that a test can end and revive."""

from collections.abc import Mapping
from pathlib import Path
from typing import Self

import processes
from processes import Server

# Small files, so that every test makes new ones of every kind; registration as often as allowed.
SMALL_FILES = {
    "mappedFileSizeCommitLog": str(256 * 1024),
    "mappedFileSizeConsumeQueue": str(20 * 200),
    "maxHashSlotNum": "500",
    "maxIndexNum": "2000",
    "registerNameServerPeriod": "1000",
    "flushConsumerOffsetInterval": "100",
    "brokerName": "broker-a",
    "enablePropertyFilter": "true",
}
# A busy machine is not an overloaded broker: nothing is refused because it came late.
PATIENCE = {"waitTimeMillsInSendQueue": "60000", "waitTimeMillsInPullQueue": "60000"}
SYNC_FLUSH = {"flushDiskType": "SYNC_FLUSH"}


class Cluster:
    """One name server, one broker; each keeps its folder and its port over restarts.

    `with Cluster(folder)`: whatever still runs at the end is killed.
    """

    def __init__(
        self,
        folder: Path,
        settings: Mapping[str, str] | None = None,
        *,
        open_files_max: int | None = None,
    ) -> None:
        self._folder = folder
        self._open_files_max = open_files_max
        self._settings = {**SMALL_FILES, **PATIENCE, **(settings or {})}
        self._name_server_port = processes.free_port()
        self._broker_port = processes.free_broker_port()
        self._running: dict[str, Server] = {}
        self._starts = 0

    @property
    def names_address(self) -> str:
        """Where the name server is, or will be."""
        return f"{processes.LOOPBACK}:{self._name_server_port}"

    @property
    def broker_address(self) -> str:
        """Where the broker is, or will be."""
        return f"{processes.LOOPBACK}:{self._broker_port}"

    @property
    def names(self) -> Server:
        """The name server that runs."""
        return self._running["names"]

    @property
    def broker(self) -> Server:
        """The broker that runs."""
        return self._running["broker"]

    @property
    def store(self) -> Path:
        """The broker's store."""
        return self._folder / "broker" / "store"

    def start_names(self) -> Server:
        """Start the name server."""
        server = processes.start_name_server(
            self._folder / "names",
            {"scanNotActiveBrokerInterval": "200"},
            port=self._name_server_port,
        )
        self._running["names"] = server
        return server

    def start_broker(self, ready: str = processes.BROKER_READY) -> Server:
        """Start the broker; the log of its last life is kept beside the new one."""
        log = self._folder / "broker" / "broker.log"
        if log.exists():
            log.rename(log.with_name(f"broker-{self._starts}.log"))
        self._starts += 1
        server = processes.start_broker(
            self._folder / "broker",
            self.names_address,
            self._settings,
            port=self._broker_port,
            ready=ready,
            open_files_max=self._open_files_max,
        )
        self._running["broker"] = server
        return server

    def logs(self) -> str:
        """What all processes have printed in all their lives."""
        paths = sorted(self._folder.glob("*/*.log"))
        return "".join(path.read_text(encoding="utf-8", errors="replace") for path in paths)

    def check_logs(self) -> None:
        """No request met an error that nobody had thought of, and nothing else failed."""
        wrong = [
            line for line in self.logs().splitlines() if "Traceback" in line or " CRITICAL " in line
        ]
        assert wrong == [], f"{len(wrong)} lines, the first: {wrong[0][-3000:]}"

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_exception: object) -> None:
        for server in self._running.values():
            server.kill()
