"""Ranges of seeds can be interrupted and continued."""

import json
from collections import Counter
from pathlib import Path

import pytest
from simulation import runner
from simulation.runner import Outcome, Results, run_all, seeds_of


@pytest.mark.parametrize(("text", "seeds"), [("7", range(7, 8)), ("0..3", range(3))])
def test_range_does_not_contain_its_end(text: str, seeds: range) -> None:
    assert seeds_of(text) == seeds


def test_interrupted_run_goes_on_where_it_stopped(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ran: list[int] = []

    def fake(_engine: str, seed: int, _kept: object) -> Outcome:
        ran.append(seed)
        error = "PropertyError: lost" if seed == 1 else ""
        return Outcome(seed, error, "", "", Counter({"power cuts": 2}), 0.0)

    monkeypatch.setattr(runner, "run_seed", fake)
    path = tmp_path / "power-abc.json"
    assert [one.seed for one in run_all("power", range(3), Results(path)) if one.error] == [1]
    assert json.loads(path.read_text()) == {"passed": [0, 2], "counts": {"power cuts": 4}}
    again = Results(path)
    list(run_all("power", range(5), again))
    assert ran == [0, 1, 2, 1, 3, 4], "what failed is run again, what passed is not"
    assert again.counts["power cuts"] == 8
