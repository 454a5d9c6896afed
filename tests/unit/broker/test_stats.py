"""Counters whose names peers choose."""

import pytest

from downrange.broker import stats as stats_module
from downrange.broker.stats import OTHER, BrokerStats


def test_names_that_peers_choose_are_counted_together_beyond_a_limit(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(stats_module, "SERIES_MAX", 2)
    stats = BrokerStats()
    for topic in ("a", "b", "c", "d", "a"):
        stats.add_sent_back("g", topic)
        stats.add_got("g", topic, 1, 10)
    assert stats.sent_back == {("g", "a"): 2, ("g", "b"): 1, (OTHER, OTHER): 2}
    counts = {key: tally.count for key, tally in stats.got_by_group.items()}
    assert counts == {("g", "a"): 2, ("g", "b"): 1, (OTHER, OTHER): 2}
    assert stats.got.count == 5


def test_what_is_deleted_is_forgotten_everywhere() -> None:
    stats = BrokerStats()
    for group, topic in (("g", "a"), ("g", "b"), ("h", "b")):
        stats.add_sent_back(group, topic)
        stats.add_got(group, topic, 1, 10)
    stats.forget_group("g")
    assert list(stats.sent_back) == list(stats.got_by_group) == [("h", "b")]
    stats.forget_topic("b")
    assert not stats.sent_back
    assert not stats.got_by_group
