"""Brokers of both makes in one cluster, and ours under Apache's name server: no client sees it."""

import json
import re
import shutil
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from interop import apache, our_processes
from interop.admin_console import AdminConsole, running_console
from interop.client_cluster import BROKER_NAME, SETTINGS, ClientCluster
from interop.client_facts import EXPECTED
from interop.client_programs import (
    JAVA_OPTIONS,
    PROGRAM_SECONDS_MAX,
    build_go_program,
    observe,
    observe_go,
)
from interop.mixed_cluster import APACHES, OURS, MixedCluster, route_of, running_mixed_cluster
from interop.releases import SCENARIOS_4_9, SCENARIOS_5_5, Release

pytestmark = pytest.mark.interop

APPEAR_SECONDS_MAX = 60.0
SPREAD = {
    "sent": f"{{{APACHES}=100, {OURS}=100}}",
    "times one": "200",
    "times two": "200",
    "order kept": "true",
    "order on": f"{APACHES} {OURS}",
}


@pytest.fixture(scope="module")
def console(tmp_path_factory: pytest.TempPathFactory) -> Iterator[AdminConsole]:
    with running_console(tmp_path_factory.mktemp("console")) as running:
        yield running


@pytest.fixture(scope="module", params=["our name server", "apaches name server"])
def mixed(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory, console: AdminConsole
) -> Iterator[MixedCluster]:
    folder = tmp_path_factory.mktemp("mixed")
    apaches_names = request.param == "apaches name server"
    with running_mixed_cluster(folder, apaches_names=apaches_names) as cluster:
        await_brokers(console, cluster.name_server, OURS, APACHES)
        yield cluster


def await_brokers(console: AdminConsole, name_server: str, *names: str) -> None:
    """Wait until brokers are registered; a starting Apache broker may need ten seconds more."""
    deadline = time.monotonic() + APPEAR_SECONDS_MAX
    while not all(
        f'"brokerName":"{name}"' in route_of(console, name_server, "TBW102") for name in names
    ):
        assert time.monotonic() < deadline, names
        time.sleep(apache.POLL_SECONDS)


def create_topic(console: AdminConsole, name_server: str, topic: str, brokers: int) -> None:
    """Create a topic in the whole cluster and wait until its route has all brokers."""
    words = ("updateTopic", "-c", "DefaultCluster", "-t", topic, "-r", "4", "-w", "4")
    printed = console.mqadmin(name_server, *words)
    assert printed.output.count("create topic to ") == brokers, printed
    deadline = time.monotonic() + APPEAR_SECONDS_MAX
    while route_of(console, name_server, topic).count('"writeQueueNums":4') != brokers:
        assert time.monotonic() < deadline, topic
        time.sleep(apache.POLL_SECONDS)


def test_our_broker_serves_clients_of_apaches_name_server(
    console: AdminConsole, tmp_path: Path
) -> None:
    with (
        apache.start_name_server(tmp_path / "name-server") as names,
        our_processes.start_broker(tmp_path / "broker", names.address, SETTINGS) as broker,
    ):
        listed = console.mqadmin(names.address, "clusterList").output
        assert re.search(
            rf"^DefaultCluster +{BROKER_NAME} +0 +{broker.address} +V5_5_0 ", listed, re.MULTILINE
        )
        create_topic(console, names.address, "made-there", 1)
        assert f'0:"{broker.address}"' in route_of(console, names.address, "made-there")
        for command, permission in (("wipeWritePerm", 4), ("addWritePerm", 6)):
            printed = console.mqadmin(names.address, command, "-b", BROKER_NAME).output
            assert f"{names.address}" in printed
            route = route_of(console, names.address, "made-there")
            assert f'"perm":{permission}' in route, command
        cluster = ClientCluster(names.address, broker.address, tmp_path)
        for release, scenario in ((SCENARIOS_5_5, "sync"), (SCENARIOS_4_9, "transaction")):
            seen = observe(cluster, release, scenario, f"{scenario}-{release.version[0]}")
            assert seen == EXPECTED[scenario]
        broker.kill()
        deadline = time.monotonic() + APPEAR_SECONDS_MAX
        while route_of(console, names.address, "made-there"):
            assert time.monotonic() < deadline
            time.sleep(apache.POLL_SECONDS)


@pytest.mark.parametrize(
    "release", [SCENARIOS_5_5, SCENARIOS_4_9], ids=lambda one: str(one.version)
)
def test_a_java_client_uses_both_brokers(
    mixed: MixedCluster, console: AdminConsole, release: Release
) -> None:
    name = f"spread-{release.version.replace('.', '-')}"
    create_topic(console, mixed.name_server, f"{name}-topic", 2)
    assert observe(mixed.for_clients, release, "spread", name) == SPREAD
    status = console.mqadmin(mixed.name_server, "topicStatus", "-t", f"{name}-topic").output
    # 200 in a circle over eight queues, and 200 more by eight keys.
    rows = re.findall(rf"^({APACHES}|{OURS}) +(\d) +0 +(\d+) ", status, re.MULTILINE)
    assert sorted(rows) == sorted(
        (name, str(i), "50") for name in (APACHES, OURS) for i in range(4)
    )
    progress = console.mqadmin(mixed.name_server, "consumerProgress", "-g", f"{name}-order").output
    assert "Consume Diff Total: 0" in progress


@pytest.mark.skipif(shutil.which("go") is None, reason="go is not installed")
def test_a_go_client_uses_both_brokers(
    mixed: MixedCluster, console: AdminConsole, tmp_path: Path
) -> None:
    create_topic(console, mixed.name_server, "go-spread-topic", 2)
    program = build_go_program(tmp_path)
    seen = observe_go(program, mixed.name_server, "spread", "go-spread", tmp_path)
    assert seen == {"brokers": f"{APACHES} {OURS}", "times": "80"}


@pytest.mark.parametrize(
    ("victim", "end"),
    [(OURS, MixedCluster.kill), (APACHES, MixedCluster.kill), (OURS, MixedCluster.stop)],
    ids=["ours killed", "apaches killed", "ours sends clients away"],
)
def test_producers_go_on_without_a_broker(
    mixed: MixedCluster,
    console: AdminConsole,
    tmp_path: Path,
    victim: str,
    end: Callable[[MixedCluster, str], None],
) -> None:
    name = f"{end.__name__}-{victim}"
    create_topic(console, mixed.name_server, f"{name}-topic", 2)
    with apache.start_program(
        "ClientScenarios",
        {"scenario": "survive", "nameServer": mixed.name_server, "prefix": name},
        tmp_path,
        release=SCENARIOS_5_5,
        java_options=JAVA_OPTIONS,
    ) as program:
        await_line(program, tmp_path, "going")
        end(mixed, victim)
        await_line(program, tmp_path, "survived")
        mixed.restart(victim)
        seen = await_line(program, tmp_path, "scenario")
    assert seen == {"before": f"{APACHES} {OURS}", "meanwhile": "1", "consumed": "true"}


def await_line(program: subprocess.Popen[bytes], folder: Path, kind: str) -> dict[str, str]:
    """Wait until the program has printed a line of this kind; returns its facts."""
    deadline = time.monotonic() + PROGRAM_SECONDS_MAX
    while True:
        ended = program.poll() is not None
        for line in map(json.loads, apache.printed_lines(folder / "ClientScenarios.out")):
            if line["kind"] == kind:
                facts: dict[str, str] = line.get("facts", {})
                return facts
        errors = (folder / "ClientScenarios.err").read_text(encoding="utf-8", errors="replace")
        assert not ended, errors[-4000:]
        assert time.monotonic() < deadline, (kind, errors[-4000:])
        time.sleep(apache.POLL_SECONDS)
