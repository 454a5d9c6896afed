"""The limit of open files, raised as far as it goes."""

import resource

import pytest

from downrange.runtime.open_files import ENOUGH, raise_limit

INFINITY = resource.RLIM_INFINITY


@pytest.mark.parametrize(
    ("soft", "hard", "is_refused", "expected", "asked"),
    [
        (1024, 4096, False, 4096, [(4096, 4096)]),
        (4096, 4096, False, 4096, []),
        (1024, INFINITY, False, ENOUGH, [(ENOUGH, INFINITY)]),
        (INFINITY, INFINITY, False, ENOUGH, []),
        (256, INFINITY, True, 256, [(ENOUGH, INFINITY)]),
    ],
)
def test_the_limit_is_what_the_system_allows(
    monkeypatch: pytest.MonkeyPatch,
    soft: int,
    hard: int,
    is_refused: bool,
    expected: int,
    asked: list[tuple[int, int]],
) -> None:
    calls: list[tuple[int, int]] = []

    def set_limit(_which: int, limits: tuple[int, int]) -> None:
        calls.append(limits)
        if is_refused:
            raise ValueError("not allowed")

    monkeypatch.setattr(resource, "getrlimit", lambda _which: (soft, hard))
    monkeypatch.setattr(resource, "setrlimit", set_limit)
    assert (raise_limit(), calls) == (expected, asked)
