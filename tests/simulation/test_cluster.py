"""A whole cluster under random faults keeps its properties, and a failing seed tells its story."""

import re
import sys
from collections import Counter
from collections.abc import Callable
from dataclasses import replace

import msgspec
import pytest
from simulation import runner
from simulation.history import Handled, History, Sent
from simulation.processes import simulate
from simulation.properties import PROPERTIES
from simulation.runner import run_seed, shrink

from downrange.broker.consumer_table import ConsumerTable
from downrange.broker.handlers.transaction import TransactionHandler
from downrange.client.message import ReceivedMessage
from downrange.client.process_queue import ProcessQueue
from downrange.protocol.delay_levels import DelayLevels
from downrange.protocol.headers.transaction import TRANSACTION_COMMIT, EndTransactionRequest

SHARDS = ("0..25", "25..50")
SEEDS_TO_FIND_A_BUG = 10


@pytest.mark.parametrize("seeds", SHARDS)
def test_properties_hold_under_faults(
    seeds: str, record_property: Callable[[str, object], None]
) -> None:
    record_property("cluster", simulate("cluster", "--seeds", seeds).splitlines()[-1])


def test_seed_repeats_a_run_to_the_last_line() -> None:
    first = simulate("cluster", "--seeds", "5..7", "--digests")
    second = simulate("cluster", "--seeds", "5..7", "--digests")
    assert first.splitlines()[:2] == second.splitlines()[:2]


# --- planted bugs: one per property ------------------------------------------------------------

_put, _take, _remove = ProcessQueue.put, ProcessQueue.take, ProcessQueue.remove
_end = TransactionHandler._end


def forget_some(
    queue: ProcessQueue, messages: list[ReceivedMessage], *, queue_end: int | None = None
) -> bool:
    kept = [one for one in messages if one.queue_offset % 5 != 3]
    return _put(queue, kept or messages[:1], queue_end=queue_end)


def take_newest(queue: ProcessQueue, count_max: int) -> list[ReceivedMessage]:
    queue._order.reverse()
    try:
        return _take(queue, count_max)
    finally:
        queue._order = type(queue._order)(sorted(queue._order))


def commit_too_much(queue: ProcessQueue, messages: list[ReceivedMessage]) -> int | None:
    offset = _remove(queue, messages)
    return None if offset is None else offset + 3


def always_commit(handler: TransactionHandler, header: EndTransactionRequest) -> object:
    return _end(handler, msgspec.structs.replace(header, commit_or_rollback=TRANSACTION_COMMIT))


def half_the_delay(levels: DelayLevels, level: int) -> int:
    return levels.delays_ms[level - 1] // 2


BUGS: dict[str, tuple[type, str, object]] = {
    "nothing acknowledged is lost": (ProcessQueue, "put", forget_some),
    "order is kept per queue": (ProcessQueue, "take", take_newest),
    "offsets are never ahead": (ProcessQueue, "remove", commit_too_much),
    "delayed messages are not early": (DelayLevels, "delay_ms", half_the_delay),
    "transactions are decided once": (TransactionHandler, "_end", always_commit),
    "hand over meets its deadline": (ConsumerTable, "on_close", lambda *_: None),
}


def test_every_property_has_a_planted_bug() -> None:
    assert BUGS.keys() == PROPERTIES.keys()


@pytest.mark.parametrize("broken", BUGS)
def test_planted_bug_is_found(broken: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(*BUGS[broken])
    errors = (run_seed("cluster", seed).error for seed in range(SEEDS_TO_FIND_A_BUG))
    assert any(broken in error for error in errors)


# --- a failing seed ----------------------------------------------------------------------------


def test_failure_is_shrunk_and_says_how_to_repeat_it(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(DelayLevels, "delay_ms", half_the_delay)
    monkeypatch.setenv("PYTHONHASHSEED", runner.HASH_SEED)
    monkeypatch.setattr(sys, "argv", ["simulation", "cluster", "--seeds", "1"])
    assert runner.main() == 1
    out = capsys.readouterr().out
    # This bug needs no fault at all, so none is left.
    assert re.search(r"git checkout \w+\+? && .* cluster --seeds 1 --faults none --story", out)
    assert re.search(r"\d s  \S+ handles delayed-\d+ of", out)
    assert "faults: none" in out


def test_shrinking_keeps_what_the_failure_needs(monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[list[int]] = []

    def fake(_engine: str, _seed: int, kept: list[int]) -> runner.Outcome:
        calls.append(kept)
        error = "PropertyError: lost: a" if {0, 2} <= set(kept) else ""
        return replace(PASSED, error=error)

    class Planned:
        def __init__(self, _seed: int) -> None:
            self.kept = [0, 1, 2, 3]

    monkeypatch.setattr(runner, "run_seed", fake)
    monkeypatch.setattr(runner, "ClusterRun", Planned)
    assert shrink(7, "PropertyError: lost: b")[0] == [0, 2]
    assert len(calls) == 4


PASSED = runner.Outcome(7, "", "", "", Counter(), 0.0)


def test_checker_accepts_a_history_in_which_all_is_well_and_refuses_a_lost_message() -> None:
    place = ("b1", "orders", 0, 0)
    history = History(is_sync=True, sent=[Sent(1.0, "plain-1", place)])
    check = PROPERTIES["nothing acknowledged is lost"]
    assert "plain-1" in next(check(history))
    history.handled.append(Handled(2.0, "c1", "plain-1", place, is_first_try=True))
    assert [text for function in PROPERTIES.values() for text in function(history)] == []
