"""A name server and a broker for foreign clients: ours, or Apache's to prove the tests."""

import contextlib
import os
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

from interop import apache, our_processes
from interop.releases import APACHE_5_5, Release

MIB = 1024 * 1024
BROKER_NAME = "broker-a"
# Both brokers get these. Files are small because the disk is shared; checks are early because the
# tests wait for them, but later than the 3 s for which Apache collects the ends of transactions
# before it notes them: it would check and deliver again what has been committed.
SETTINGS = {
    "brokerName": BROKER_NAME,
    "flushDiskType": "ASYNC_FLUSH",
    "enablePropertyFilter": "true",
    "traceTopicEnable": "true",
    "transactionTimeOut": "5000",
    "transactionCheckInterval": "1000",
    "mappedFileSizeCommitLog": str(64 * MIB),
    "maxHashSlotNum": "100000",
    "maxIndexNum": "400000",
}

# What Apache has switched off by default and ours does not have at all.
APACHE_SETTINGS = {**SETTINGS, "recallMessageEnable": "true"}


@dataclass(frozen=True, slots=True)
class ClientCluster:
    """Where clients find their broker, and a folder for what they write."""

    name_server: str
    broker: str
    folder: Path
    of_apache: bool = False


def wants_apache() -> bool:
    """Whether the tests of clients shall run against the real broker (`make oracle`)."""
    return os.environ.get("DOWNRANGE_ORACLE") == "1"


@contextlib.contextmanager
def running_cluster(
    folder: Path, *, of_apache: bool | None = None, release: Release = APACHE_5_5
) -> Iterator[ClientCluster]:
    """One name server and one broker while the block runs; whose, is said here or by `make`."""
    of_apache = wants_apache() if of_apache is None else of_apache
    with contextlib.ExitStack() as servers:
        if of_apache:
            names = servers.enter_context(
                apache.start_name_server(folder / "name-server", release=release)
            )
            plan = apache.plan_broker(
                folder / "broker", folder / "broker" / "store", names.address, APACHE_SETTINGS
            )
            broker = servers.enter_context(apache.start_broker(replace(plan, release=release)))
        else:
            names = servers.enter_context(our_processes.start_name_server(folder / "name-server"))
            broker = servers.enter_context(
                our_processes.start_broker(folder / "broker", names.address, SETTINGS)
            )
        yield ClientCluster(names.address, broker.address, folder, of_apache)
