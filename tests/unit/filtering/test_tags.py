"""Promises of tag expressions."""

import json
from pathlib import Path

import pytest

from downrange.filtering.errors import FilterSyntaxError
from downrange.filtering.tags import EVERYTHING, is_tag_type, parse_tags

# Made with FilterAPI.buildSubscriptionData of RocketMQ 5.5.0: expression, the expression as the
# subscription holds it (null if refused), hash of each tag.
JAVA_SUBSCRIPTIONS: list[tuple[str, str | None, dict[str, int]]] = json.loads(
    Path(__file__).with_name("tag_subscriptions.json").read_text(encoding="utf-8")
)


@pytest.mark.parametrize(("expression", "kept", "codes"), JAVA_SUBSCRIPTIONS)
def test_expressions_are_split_as_java_splits_them(
    expression: str, kept: str | None, codes: dict[str, int]
) -> None:
    if kept is None:
        with pytest.raises(FilterSyntaxError, match="expected a tag"):
            parse_tags(expression)
        return
    subscription = parse_tags(expression)
    assert subscription.expression == kept
    assert subscription.tags == set(codes)
    assert subscription.codes == set(codes.values())


@pytest.mark.parametrize("expression", [None, "", "*"])
def test_no_expression_is_a_subscription_to_everything(expression: str | None) -> None:
    subscription = parse_tags(expression)
    assert subscription.expression == EVERYTHING
    assert subscription.is_everything
    assert subscription.matches_code(0)
    assert subscription.matches_code(65)
    assert subscription.matches_tag(None)
    assert subscription.matches_tag("A")


def test_a_tag_with_the_same_code_is_told_apart_by_its_text() -> None:
    subscription = parse_tags("Aa")
    assert subscription.matches_code(2112)
    assert subscription.matches_tag("Aa")
    assert not subscription.matches_tag("BB")  # its code is 2112, too


def test_a_message_without_a_tag_matches_no_tag() -> None:
    subscription = parse_tags("A || B")
    assert not subscription.matches_code(0)
    assert not subscription.matches_tag(None)


def test_an_expression_of_blanks_matches_no_code_but_leaves_the_consumer_nothing_to_check() -> None:
    subscription = parse_tags(" || ")
    assert not subscription.matches_code(65)
    assert subscription.matches_tag("A")


def test_subscriptions_without_a_type_are_by_tags() -> None:
    assert [is_tag_type(name) for name in (None, "", "TAG", "SQL92", "tag")] == [
        True,
        True,
        True,
        False,
        False,
    ]
