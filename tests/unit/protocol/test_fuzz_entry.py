"""The fuzzer itself: it finds what it looks for, repeats itself, decoders pass."""

import importlib.util
import random
import re
import sys
import time
from itertools import islice
from pathlib import Path

import pytest

from downrange.protocol.errors import RemoteProtocolError

PATH = Path(__file__).resolve().parents[3] / "scripts" / "fuzz.py"
SPEC = importlib.util.spec_from_file_location("downrange_fuzz", PATH)
assert SPEC is not None
assert SPEC.loader is not None
fuzz = importlib.util.module_from_spec(SPEC)
sys.modules[SPEC.name] = fuzz  # dataclasses look their module up by name
SPEC.loader.exec_module(fuzz)


def refuse(data: bytes) -> None:
    raise RemoteProtocolError(data.hex())


def crash(data: bytes) -> None:
    raise IndexError(len(data))


def dawdle(data: bytes) -> None:
    deadline = time.perf_counter() + 0.01 + len(data)
    while time.perf_counter() < deadline:
        pass


def hoard(data: bytes) -> None:
    bytearray(8 * 1024 * 1024 + len(data))


@pytest.mark.parametrize("name", sorted(fuzz.TARGETS))
def test_every_decoder_survives_a_short_run(name: str) -> None:
    count, failure = fuzz.fuzz(fuzz.TARGETS[name], random.Random(7), 0.5)
    assert failure is None
    assert count > 20


def test_a_protocol_error_is_an_honest_answer() -> None:
    assert fuzz.broken_rule(fuzz.Target(refuse, (b"x",)), b"x", trace_memory=True) is None


def test_any_other_exception_is_found() -> None:
    _, failure = fuzz.fuzz(fuzz.Target(crash, (b"abc",)), random.Random(1), 1.0)
    assert "IndexError: 3" in failure.rule
    assert failure.data == b"abc"


def test_a_slow_decoder_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fuzz, "INPUT_SECONDS_MAX", 0.005)
    assert "took" in fuzz.broken_rule(fuzz.Target(dawdle, ()), b"", trace_memory=False)


def test_a_greedy_decoder_is_found() -> None:
    assert "memory" in fuzz.broken_rule(fuzz.Target(hoard, ()), b"", trace_memory=True)


def test_the_same_seed_feeds_the_same_inputs() -> None:
    target = fuzz.TARGETS["loose_json"]
    first, second, other = (
        list(islice(fuzz.inputs(target, random.Random(seed)), 200)) for seed in (1, 1, 2)
    )
    assert first == second != other
    assert max(map(len, first)) <= fuzz.INPUT_BYTES_MAX


def test_a_run_prints_seed_and_verdict(capsys: pytest.CaptureFixture[str]) -> None:
    assert fuzz.main(["--seconds", "0.1", "--seed", "5", "--target", "frame"]) == 0
    output = capsys.readouterr().out
    assert re.fullmatch(r"seed 5\nframe: ok, \d+ inputs\nverdict: ok\n", output)


def test_a_failed_run_says_how_to_repeat_it(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(fuzz.TARGETS, "crash", fuzz.Target(crash, (b"abc",)))
    assert fuzz.main(["--seconds", "1", "--seed", "5", "--target", "crash"]) == 1
    output = capsys.readouterr().out
    assert "IndexError" in output
    assert "--target crash --seed 5" in output
    assert output.endswith("verdict: failed\n")
