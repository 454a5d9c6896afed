"""The names that a user imports: all there, loaded only when used."""

import subprocess
import sys

import pytest

import downrange


def test_every_public_name_is_there() -> None:
    assert set(downrange.__all__) == set(downrange._MODULE_OF)
    for name in downrange.__all__:
        assert getattr(downrange, name) is not None, name
        assert name in dir(downrange)
    with pytest.raises(AttributeError, match="no attribute 'nonsense'"):
        _ = downrange.nonsense  # type: ignore[attr-defined]


def test_the_import_alone_loads_nothing() -> None:
    program = (
        "import sys, downrange; print(sum(name.startswith('downrange.') for name in sys.modules))"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=True
    )
    assert done.stdout.strip() == "0"


def test_the_client_needs_no_server() -> None:
    program = "import sys, downrange; downrange.Producer; print(*sys.modules)"
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=True
    )
    loaded = done.stdout.split()
    assert not [
        name
        for name in loaded
        if name.startswith(("downrange.broker", "downrange.store", "downrange.nameserver"))
    ]
