"""Runs our Java and Go programs, which observe a cluster as ordinary clients do."""

import json
import os
import subprocess
from collections.abc import Mapping
from pathlib import Path

from interop import apache
from interop.client_cluster import ClientCluster
from interop.releases import OracleError, Release

PROGRAM_SECONDS_MAX = 240.0
JAVA_OPTIONS = ("-Xmx256m", "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC")
GO_SOURCES = Path(__file__).resolve().parent / "go"
GO_BUILD_SECONDS_MAX = 480.0


def observe(
    cluster: ClientCluster,
    release: Release,
    scenario: str,
    name: str,
    java_properties: Mapping[str, str] | None = None,
) -> dict[str, str]:
    """Run a scenario with topics and groups of its own; returns the facts it printed."""
    lines = apache.run_program(
        "ClientScenarios",
        {"scenario": scenario, "nameServer": cluster.name_server, "prefix": name},
        cluster.folder / name,
        seconds_max=PROGRAM_SECONDS_MAX,
        release=release,
        java_properties=java_properties,
        java_options=JAVA_OPTIONS,
    )
    facts: dict[str, str] = json.loads(lines[-1])["facts"]
    return facts


def build_go_program(folder: Path) -> Path:
    """Build our Go program; the first build fetches the client by its module name."""
    built = folder / "scenarios"
    _run(["go", "build", "-o", str(built), "."], GO_SOURCES, GO_BUILD_SECONDS_MAX)
    return built


def observe_go(
    program: Path, name_server: str, scenario: str, name: str, folder: Path
) -> dict[str, str]:
    """Run a scenario of the Go client with topics and groups of its own."""
    output = _run([str(program), scenario, name_server, name], folder, PROGRAM_SECONDS_MAX)
    facts: dict[str, str] = json.loads(output.splitlines()[-1])
    return facts


def _run(command: list[str], folder: Path, seconds_max: float) -> str:
    home = {} if folder == GO_SOURCES else {"HOME": str(folder)}  # offsets of broadcasting
    done = subprocess.run(
        command,
        cwd=folder,
        env={**os.environ, **home},
        capture_output=True,
        text=True,
        timeout=seconds_max,
        check=False,
    )
    if done.returncode != 0:
        raise OracleError(f"{command[:2]} failed: {done.stderr[-4000:]}")
    return done.stdout
