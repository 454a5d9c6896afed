"""Brokers that lose power, are killed and shut down at random instants keep what they promised."""

import re
import sys
from collections.abc import Callable

import pytest
from simulation import runner
from simulation.processes import simulate
from simulation.runner import run_seed

from downrange.runtime.durable_file import DurableFile
from downrange.store.segment import Segment
from downrange.testing.simulated_disk import SimulatedDisk

SHARDS = ("0..12", "12..24")
POWER_CUTS_PER_SHARD = 25
SEEDS_TO_FIND_A_BUG = 8


@pytest.mark.parametrize("seeds", SHARDS)
def test_promises_survive_power_cuts_kills_and_restarts(
    seeds: str, record_property: Callable[[str, object], None]
) -> None:
    summary = simulate("power", "--seeds", seeds).splitlines()[-1]
    record_property("power cuts", summary)
    found = re.search(r"(\d+) power cuts(?:,|$)", summary)
    assert found is not None
    assert int(found[1]) >= POWER_CUTS_PER_SHARD


def test_seed_repeats_a_run_to_the_last_line() -> None:
    first, second = (simulate("power", "--seeds", "3..5", "--digests") for _ in range(2))
    assert first.splitlines()[:2] == second.splitlines()[:2]


# --- planted bugs: a checker that finds nothing proves nothing ---------------------------------


def nothing(*_arguments: object) -> None:
    """A call that does not do its work."""


BUGS: dict[str, tuple[type, str, object]] = {
    "the log is never synced": (Segment, "sync", nothing),
    "names are never synced": (SimulatedDisk, "fsync_directory", nothing),
    "tables are not saved": (DurableFile, "replace", nothing),
}


@pytest.mark.parametrize("bug", BUGS)
def test_planted_bug_is_found(bug: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(*BUGS[bug])
    assert any(run_seed("power", seed).error for seed in range(SEEDS_TO_FIND_A_BUG))


def test_failure_says_how_to_repeat_it(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(Segment, "sync", nothing)
    monkeypatch.setenv("PYTHONHASHSEED", runner.HASH_SEED)
    monkeypatch.setattr(sys, "argv", ["simulation", "power", "--seeds", "0..2"])
    assert runner.main() == 1
    out = capsys.readouterr().out
    assert re.search(r"repeat it with: git checkout \w+\+? && .* power --seeds \d --story", out)
    assert "the broker died" in out
