"""What tests of the broker's tables share: a clock by hand, files in a folder, idle connections."""

from collections.abc import Callable
from pathlib import Path

import pytest

from downrange.remoting.connection import Connection
from downrange.runtime.disk import Disk
from downrange.testing.clock import ManualClock
from downrange.testing.virtual_time import run


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def disk() -> Disk:
    return Disk()


@pytest.fixture
def connect() -> Callable[[], Connection]:
    """Makes connections that lead nowhere; to a table they are only somebody."""

    async def make() -> Connection:
        return Connection({})

    return lambda: run(make())


@pytest.fixture
def golden_config() -> Path:
    """The tables that a 5.5.0 broker wrote in a session with many clients."""
    return Path(__file__).parents[2] / "golden" / "data" / "clean" / "store" / "config"
