"""Numbers and names as in Apache RocketMQ 5.5.0."""

import pytest

from downrange.protocol.errors import LocalProtocolError
from downrange.protocol.languages import LanguageCode, language_of_name, language_of_number
from downrange.protocol.request_codes import (
    WIDE_CODE_BY_LOW_HALF,
    RequestCode,
    RetiredRequestCode,
)
from downrange.protocol.response_codes import ResponseCode
from downrange.protocol.versions import (
    CURRENT_VERSION,
    GO_AWAY_SINCE,
    RECONSUME_LIMIT_SINCE,
    STRICT_ROUTE_JSON_SINCE,
    VERSION_NAMES,
    version_name,
    version_number,
)


def test_all_codes_of_the_release_are_there() -> None:
    assert len(RequestCode) == 169
    assert len(ResponseCode) == 68


def test_retired_codes_do_not_come_back_under_a_new_meaning() -> None:
    assert {code.value for code in RequestCode}.isdisjoint(RetiredRequestCode)


def test_every_wide_code_can_be_restored() -> None:
    wide = {code.value for code in RequestCode if code > 0x7FFF}
    assert set(WIDE_CODE_BY_LOW_HALF.values()) == wide
    assert set(WIDE_CODE_BY_LOW_HALF).isdisjoint(RequestCode)
    assert WIDE_CODE_BY_LOW_HALF[3442] == RequestCode.POP_MESSAGE
    assert WIDE_CODE_BY_LOW_HALF[3543] == RequestCode.BATCH_ACK_MESSAGE


@pytest.mark.parametrize(
    ("release", "number"),
    [
        ("V3_0_0_SNAPSHOT", 0),
        ("V3_0_0_BETA5", 6),
        ("V3_0_0_BETA6_SNAPSHOT", 7),
        ("V3_0_0_FINAL", 15),
        ("3.0.1", 17),
        ("3.0.15", 45),
        ("3.1.0", 47),
        ("3.2.6", 79),
        ("3.2.9", 85),
        ("3.3.1", 87),
        ("3.4.9", 121),
        ("3.5.8", 137),
        ("3.9.9", 211),
        ("V4_0_0_SNAPSHOT", 212),
        ("4.0.0", 213),
        ("4.5.2", 317),
        ("4.9.3", 399),
        ("4.9.4", 401),
        ("5.0.0", 413),
        ("5.3.1", 475),
        ("5.3.3", 479),
        ("5.5.0", 513),
        ("5.9.9", 611),
        ("HIGHER_VERSION", 612),
    ],
)
def test_release_numbers_are_those_of_java(release: str, number: int) -> None:
    assert version_number(release) == number


def test_release_names_and_numbers_are_each_others_inverse() -> None:
    assert len(VERSION_NAMES) == 613
    assert [version_number(name) for name in VERSION_NAMES] == list(range(613))
    assert [version_name(number) for number in range(613)] == list(VERSION_NAMES)


def test_numbers_past_the_list_mean_its_ends() -> None:
    assert version_name(100_000) == "HIGHER_VERSION"
    assert version_name(-1) == "V3_0_0_SNAPSHOT"


def test_an_unknown_release_is_our_own_fault() -> None:
    with pytest.raises(LocalProtocolError, match=r"6\.0\.0"):
        version_number("6.0.0")


def test_gates_stand_where_java_has_them() -> None:
    assert (RECONSUME_LIMIT_SINCE, STRICT_ROUTE_JSON_SINCE) == (121, 401)
    assert 475 < GO_AWAY_SINCE <= 477, "Java asks for more than 5.3.1"
    assert CURRENT_VERSION == 513


def test_unknown_languages_are_other() -> None:
    assert language_of_number(3) is language_of_name("PYTHON") is LanguageCode.PYTHON
    assert language_of_number(99) is language_of_name("COBOL") is LanguageCode.OTHER
