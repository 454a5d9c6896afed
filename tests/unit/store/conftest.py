"""What every test of the store starts from."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from unit.store.building import StagedDisk, open_store

from downrange.store.message_store import MessageStore
from downrange.testing.clock import ManualClock


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def disk() -> StagedDisk:
    return StagedDisk()


@pytest.fixture
def store(tmp_path: Path, clock: ManualClock, disk: StagedDisk) -> Iterator[MessageStore]:
    opened = open_store(tmp_path, clock, disk)
    yield opened
    opened.close()
