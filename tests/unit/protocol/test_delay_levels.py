"""The table of delay levels."""

import pytest

from downrange.protocol.delay_levels import DelayLevels, level_of_queue, queue_of_level


def test_default_table_has_the_eighteen_levels_of_rocketmq() -> None:
    levels = DelayLevels.parse()
    assert levels.level_max == 18
    assert levels.delay_ms(1) == 1_000
    assert levels.delay_ms(5) == 60_000
    assert levels.delay_ms(18) == 7_200_000


def test_every_unit_is_understood() -> None:
    assert DelayLevels.parse("1s 2m  3h 4d").delays_ms == (1_000, 120_000, 10_800_000, 345_600_000)


@pytest.mark.parametrize("text", ["", " ", "1", "s", "1x", "1s -1s", "1.5s", "²s", "1s,5s"])
def test_table_that_makes_no_sense_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="delay level"):
        DelayLevels.parse(text)


def test_level_is_held_within_the_table() -> None:
    levels = DelayLevels.parse("1s 5s")
    assert [levels.clamp(level) for level in (-1, 0, 1, 2, 3, 99)] == [0, 0, 1, 2, 2, 2]


def test_level_outside_the_table_waits_a_second_as_in_java() -> None:
    assert DelayLevels.parse("5s").delay_ms(2) == 1_000
    assert DelayLevels.parse("5s").delay_ms(0) == 1_000


def test_level_waits_in_the_queue_before_its_number() -> None:
    assert queue_of_level(3) == 2
    assert level_of_queue(queue_of_level(3)) == 3
