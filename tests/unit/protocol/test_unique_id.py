"""Unique ids of clients: made, told apart and read back."""

from datetime import UTC, datetime, timedelta, timezone
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from downrange.protocol.errors import RemoteProtocolError
from downrange.protocol.unique_id import (
    UniqueId,
    UniqueIdGenerator,
    decode_grpc_unique_id,
    decode_unique_id,
    month_start_ms,
)
from downrange.testing.clock import ManualClock

BEIJING = timezone(timedelta(hours=8))
# Made by MessageClientIDSetter in UTC at 2026-11-15T20:56:04.514, process 7625 on fd00::2.
JAVA_ID = "FD0000000000000000000000000000021DC930946E094C9700A20000"
JAVA_ID_BORN_MS = 1794776164514


def ms(
    year: int,
    month: int,
    day: int,
    hour: int = 0,
    minute: int = 0,
    second: int = 0,
    zone: timezone = UTC,
) -> int:
    return int(datetime(year, month, day, hour, minute, second, tzinfo=zone).timestamp()) * 1000


def generator(clock: ManualClock, ip: str = "10.1.2.3") -> UniqueIdGenerator:
    return UniqueIdGenerator(ip=ip, process_id=70000, clock=clock, random=Random(1), zone=UTC)


def test_id_of_a_java_client_is_read() -> None:
    unique_id = decode_unique_id(JAVA_ID, now_ms=JAVA_ID_BORN_MS + 5, zone=UTC)
    assert unique_id == UniqueId("fd00::2", 7625, 0x30946E09, JAVA_ID_BORN_MS, 0)


def test_id_has_the_form_of_java() -> None:
    clock = ManualClock(ms(2024, 5, 1) + 0x1234567)
    ids = generator(clock)
    first = ids.next_id()
    assert first[:12] == "0A010203" + f"{70000 & 0xFFFF:04X}"
    assert first[20:] == "012345670000"
    assert ids.next_id()[20:] == "012345670001"
    assert len(generator(clock, "2001:db8::1").next_id()) == 56


def test_ids_that_are_reserved_are_given_to_nobody_else() -> None:
    ids = generator(ManualClock(ms(2024, 5, 1) + 0x1234567))
    first = ids.next_id()
    head, counter = ids.reserve(1000)
    assert (head, counter) == (first[:-4], 1)
    assert ids.next_id() == f"{head}{1001:04X}"
    ids.reserve(1 << 16)
    assert ids.next_id() == f"{head}{1002:04X}"


def test_id_says_when_and_where_it_was_made() -> None:
    clock = ManualClock(ms(2024, 2, 29, 23, 59))
    unique_id = decode_unique_id(generator(clock).next_id(), now_ms=clock.wall_ms(), zone=UTC)
    assert unique_id.born_ms == clock.wall_ms()
    assert (unique_id.ip, unique_id.process_id) == ("10.1.2.3", 70000 & 0xFFFF)


@given(st.integers(ms(2020, 1, 1), ms(2039, 12, 31)), st.integers(0, 27 * 86_400_000))
def test_birth_is_found_within_four_weeks(born_ms: int, age_ms: int) -> None:
    text = generator(ManualClock(born_ms)).next_id()
    assert decode_unique_id(text, now_ms=born_ms + age_ms, zone=UTC).born_ms == born_ms


def test_milliseconds_start_again_with_each_month() -> None:
    clock = ManualClock(ms(2023, 12, 31, 23, 59, 59))
    ids = generator(clock)
    assert ids.next_id()[20:28] == f"{31 * 86_400_000 - 1000:08X}"
    clock.advance(1000)
    assert ids.next_id()[20:28] == "00000000"


def test_clock_that_goes_back_into_the_last_month_gives_times_of_that_month() -> None:
    clock = ManualClock(ms(2024, 3, 1))
    ids = generator(clock)
    ids.next_id()
    clock.jump_to(ms(2024, 3, 1) - 1)
    text = ids.next_id()
    assert decode_unique_id(text, now_ms=ms(2024, 3, 1), zone=UTC).born_ms == ms(2024, 3, 1) - 1


def test_ids_of_one_millisecond_differ_until_the_counter_comes_round() -> None:
    ids = generator(ManualClock())
    assert len({ids.next_id() for _ in range(65536)}) == 65536
    assert ids.next_id()[-4:] == "0000"


def test_month_begins_at_local_midnight() -> None:
    now_ms = ms(2024, 4, 30, 20)  # already May in Beijing
    assert month_start_ms(now_ms, zone=BEIJING) == ms(2024, 5, 1, zone=BEIJING)
    assert month_start_ms(now_ms, zone=UTC) == ms(2024, 4, 1)
    assert month_start_ms(ms(2024, 1, 15), zone=UTC, months_later=-1) == ms(2023, 12, 1)
    assert month_start_ms(ms(2024, 12, 15), zone=UTC, months_later=1) == ms(2025, 1, 1)


def test_month_without_a_zone_is_that_of_the_machine() -> None:
    now_ms = ms(2024, 4, 15)
    start = datetime.fromtimestamp(month_start_ms(now_ms) / 1000).astimezone()
    assert (start.month, start.day, start.hour, start.minute) == (4, 1, 0, 0)


def test_id_of_a_grpc_client_is_read() -> None:
    mac, seconds = "0242AC110002", f"{86_400:08X}"
    unique_id = decode_grpc_unique_id("01" + mac + "1DC9" + seconds + "0000002A")
    assert unique_id.mac.hex() == mac.lower()
    assert unique_id.process_id == 0x1DC9
    assert unique_id.born_ms == ms(2021, 1, 2)
    assert unique_id.counter == 42


@pytest.mark.parametrize("text", ["", "AB", JAVA_ID[:-2], JAVA_ID + "00", "X" * 32])
def test_what_is_no_unique_id_is_refused(text: str) -> None:
    with pytest.raises(RemoteProtocolError):
        decode_unique_id(text, now_ms=0, zone=UTC)
    with pytest.raises(RemoteProtocolError):
        decode_grpc_unique_id(text)
