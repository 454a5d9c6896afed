"""Steps of the wall clock do not make files expire."""

from pathlib import Path

import pytest
from unit.store.building import StagedDisk, fill, numbered, open_store

from downrange.store.expiry_clock import STEP_MS_MIN, ExpiryClock
from downrange.store.message_store import MessageStore
from downrange.store.retention import HOUR_MS
from downrange.store.settings import RetentionSettings
from downrange.testing.clock import ManualClock

KEPT_MS = 72 * HOUR_MS
YEAR_MS = 365 * 24 * HOUR_MS


@pytest.fixture
def expiry(clock: ManualClock) -> ExpiryClock:
    return ExpiryClock(clock)


def step(clock: ManualClock, milliseconds: int) -> None:
    clock.jump_to(clock.wall_ms() + milliseconds)


def test_without_steps_it_is_the_wall_clock(expiry: ExpiryClock, clock: ManualClock) -> None:
    for _ in range(100):
        clock.advance(HOUR_MS)
        step(clock, STEP_MS_MIN - 1)  # a clock that is slewed
        assert expiry.now_ms(KEPT_MS) == clock.wall_ms()


def test_a_step_forward_is_left_out_until_all_older_files_have_expired(
    expiry: ExpiryClock, clock: ManualClock
) -> None:
    before_ms = clock.wall_ms()
    step(clock, YEAR_MS)
    assert expiry.now_ms(KEPT_MS) == before_ms
    clock.advance(KEPT_MS - 1)
    assert expiry.now_ms(KEPT_MS) == before_ms + KEPT_MS - 1
    clock.advance(1)
    assert expiry.now_ms(KEPT_MS) == clock.wall_ms()


def test_a_step_that_is_taken_back_leaves_nothing(expiry: ExpiryClock, clock: ManualClock) -> None:
    step(clock, YEAR_MS)
    expiry.now_ms(KEPT_MS)
    step(clock, -YEAR_MS)
    assert expiry.now_ms(KEPT_MS) == clock.wall_ms()


def test_a_step_back_is_followed_at_once(expiry: ExpiryClock, clock: ManualClock) -> None:
    step(clock, -YEAR_MS)
    assert expiry.now_ms(KEPT_MS) == clock.wall_ms()


def test_a_rest_as_long_as_files_are_kept_does_not_age_them(
    expiry: ExpiryClock, clock: ManualClock
) -> None:
    last_ms = clock.wall_ms() - YEAR_MS
    expiry.start(last_ms, KEPT_MS)
    assert expiry.now_ms(KEPT_MS) == last_ms


@pytest.mark.parametrize("rest_ms", [0, HOUR_MS, KEPT_MS, -YEAR_MS])
def test_a_shorter_rest_ages_files(expiry: ExpiryClock, clock: ManualClock, rest_ms: int) -> None:
    expiry.start(clock.wall_ms() - rest_ms, KEPT_MS)
    assert expiry.now_ms(KEPT_MS) == clock.wall_ms()


# --- the store ----------------------------------------------------------------------------

ANY_HOUR = RetentionSettings(delete_when=";".join(f"{hour:02d}" for hour in range(24)))


def aged_store(root: Path, clock: ManualClock, disk: StagedDisk) -> MessageStore:
    """Four files, written an hour ago."""
    store = open_store(root, clock, disk, retention=ANY_HOUR)
    fill(store, numbered(130))
    disk.modified = {one.path.name: clock.wall_ms() for one in store.log.chain.segments}
    clock.advance(HOUR_MS)
    assert store.expire_some() == 0
    return store


def test_a_clock_set_forward_by_a_year_deletes_nothing(
    tmp_path: Path, clock: ManualClock, disk: StagedDisk
) -> None:
    store = aged_store(tmp_path, clock, disk)
    files = len(store.log.chain.segments)
    step(clock, YEAR_MS)
    assert store.expire_some() == 0
    clock.advance(KEPT_MS - HOUR_MS - 1)
    assert store.expire_some() == 0
    clock.advance(1)
    assert store.expire_some() == files - 1
    store.close()


def test_a_clock_set_forward_between_two_runs_deletes_nothing(
    tmp_path: Path, clock: ManualClock, disk: StagedDisk
) -> None:
    aged_store(tmp_path, clock, disk).close()
    step(clock, YEAR_MS)
    store = open_store(tmp_path, clock, disk, retention=ANY_HOUR)
    assert store.expire_some() == 0
    store.close()
