"""Whatever a peer asks for, the broker's work, memory, files and log stay within bounds."""

import logging
import re
import time
from collections.abc import Callable

import pytest
from simulation.processes import simulate
from simulation.runner import run_seed

from downrange.broker.handlers.offset import OffsetHandler
from downrange.protocol.request_codes import RequestCode

SEEDS_TO_FIND_A_BUG = 3


def test_limits_hold_for_any_sequence_of_requests() -> None:
    summary = simulate("hostile", "--seeds", "0..25").splitlines()[-1]
    asked = set(re.findall(r"\d+ ([A-Z][A-Z0-9_]+)", summary))
    assert {code.name for code in RequestCode} - asked == set(), "a code that was never tried"


_kept: list[object] = []


def log_too_much(*_: object) -> None:
    for _line in range(100):
        logging.getLogger("downrange.broker").warning("%s", "x" * 1_000)


def keep_too_much(*_: object) -> None:
    _kept.extend([number] for number in range(50_000))


def work_too_much(*_: object) -> None:
    begin_s = time.thread_time()
    while time.thread_time() < begin_s + 0.1:
        pass


@pytest.mark.parametrize(
    ("broken", "bug"),
    [
        ("log bytes", log_too_much),
        ("memory blocks", keep_too_much),
        ("CPU seconds of UPDATE_CONSUMER_OFFSET", work_too_much),
    ],
)
def test_planted_bug_is_found(
    broken: str, bug: Callable[[object], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(OffsetHandler, "update", bug)
    try:
        assert any(broken in run_seed("hostile", seed).error for seed in range(SEEDS_TO_FIND_A_BUG))
    finally:
        _kept.clear()
