"""Counters turned into rates and sums, with time driven by hand."""

import pytest

from downrange.broker.rates import ITEMS_PER_SAMPLE, PutTimes, Rates
from downrange.broker.stats import BrokerStats
from downrange.protocol.bodies.statistics import StatsWindow
from downrange.testing.clock import ManualClock

DAY_MS = 86_400_000


def rates_of(stats: BrokerStats, clock: ManualClock) -> Rates:
    return Rates(stats, clock, "DefaultCluster")


def pass_seconds(rates: Rates, clock: ManualClock, seconds: int) -> None:
    for _ in range(seconds):
        clock.advance(1000)
        rates.sample()


def test_a_rate_is_shown_once_its_window_is_full() -> None:
    stats, clock = BrokerStats(), ManualClock()
    rates = rates_of(stats, clock)
    pass_seconds(rates, clock, 10)
    assert rates.put_tps == "  "
    stats.add_put("T", 50, 500)
    pass_seconds(rates, clock, 1)
    first, minute, ten_minutes = rates.put_tps.split(" ")
    assert float(first) == pytest.approx(5.0)
    assert (minute, ten_minutes) == ("", "")
    pass_seconds(rates, clock, 590)
    shown = [float(text) for text in rates.put_tps.split(" ")]
    assert shown == pytest.approx([0.0, 0.0, 50 / 600])


def test_pulls_are_shown_found_missed_and_together() -> None:
    stats, clock = BrokerStats(), ManualClock()
    rates = rates_of(stats, clock)
    assert rates.get_total_tps == "0.0 0.0 0.0"
    pass_seconds(rates, clock, 1)
    rates.pulls.found, rates.pulls.missed = 10, 30
    stats.add_got("G", "T", 20, 200)
    pass_seconds(rates, clock, 10)
    assert float(rates.get_found_tps) == pytest.approx(1.0)
    assert float(rates.get_missed_tps) == pytest.approx(3.0)
    assert float(rates.get_transferred_tps) == pytest.approx(2.0)
    total, *rest = rates.get_total_tps.split(" ")
    assert float(total) == pytest.approx(4.0)
    assert rest == ["0.0", "0.0"]


def test_a_topic_has_sums_of_the_last_minute_hour_and_day() -> None:
    stats, clock = BrokerStats(), ManualClock()
    rates = rates_of(stats, clock)
    stats.add_put("T", 7, 70)
    pass_seconds(rates, clock, 1)
    data = rates.stats_data("TOPIC_PUT_NUMS", "T")
    assert data is not None
    assert data.stats_minute == data.stats_hour == data.stats_day
    assert data.stats_minute == StatsWindow(sum=7, tps=0.7, avgpt=1.0)
    pass_seconds(rates, clock, 120)
    stats.add_put("T", 1, 10)
    pass_seconds(rates, clock, 10)
    data = rates.stats_data("TOPIC_PUT_SIZE", "T")
    assert data is not None
    assert (data.stats_minute.sum, data.stats_hour.sum, data.stats_day.sum) == (10, 80, 80)
    assert data.stats_hour.avgpt == 10.0
    assert rates.topic_put_tps("T") == pytest.approx(1 / 60, rel=0.01)
    pass_seconds(rates, clock, 3600)
    data = rates.stats_data("TOPIC_PUT_NUMS", "T")
    assert data is not None
    assert (data.stats_minute.sum, data.stats_hour.sum, data.stats_day.sum) == (0, 0, 8)
    assert data.stats_day.tps > 0


def test_a_day_ago_is_forgotten() -> None:
    stats, clock = BrokerStats(), ManualClock()
    rates = rates_of(stats, clock)
    stats.add_put("T", 7, 70)
    rates.sample()
    for _ in range(25 * 60):
        clock.advance(60_000)
        rates.sample()
    data = rates.stats_data("TOPIC_PUT_NUMS", "T")
    assert data is not None
    assert data.stats_day.sum == 0


def test_groups_sent_back_messages_and_the_broker_are_counted_under_their_names() -> None:
    stats, clock = BrokerStats(), ManualClock()
    rates = rates_of(stats, clock)
    stats.add_got("G", "T", 3, 30)
    stats.add_sent_back("G", "T")
    stats.add_put("T", 2, 20)
    rates.sample()
    found = {
        (name, key): rates.stats_data(name, key)
        for name, key in (
            ("GROUP_GET_NUMS", "T@G"),
            ("GROUP_GET_SIZE", "T@G"),
            ("SNDBCK_PUT_NUMS", "T@G"),
            ("BROKER_PUT_NUMS", "DefaultCluster"),
            ("BROKER_GET_NUMS", "DefaultCluster"),
        )
    }
    sums = [data.stats_minute.sum if data is not None else None for data in found.values()]
    assert sums == [3, 30, 1, 2, 3]
    assert rates.group_get_tps("G", "T") == 0.3
    assert rates.group_get_tps("G", "other") == 0.0


def test_names_and_keys_that_are_not_counted_are_not_there() -> None:
    stats, clock = BrokerStats(), ManualClock()
    rates = rates_of(stats, clock)
    stats.add_put("T", 1, 10)
    assert rates.stats_data("TOPIC_PUT_NUMS", "T") is not None, "counted, not yet sampled"
    for name, key in (
        ("TOPIC_PUT_NUMS", "U"),
        ("TOPIC_PUT", "T"),
        ("TOPIC_PUT_LATENCY", "0@T"),
        ("BROKER_PUT_SIZE", "DefaultCluster"),
        ("", ""),
    ):
        assert rates.stats_data(name, key) is None, (name, key)


def test_a_topic_that_was_deleted_and_comes_again_starts_anew() -> None:
    stats, clock = BrokerStats(), ManualClock()
    rates = rates_of(stats, clock)
    stats.add_put("T", 100, 1000)
    pass_seconds(rates, clock, 1)
    stats.forget_topic("T")
    stats.add_put("T", 1, 10)
    pass_seconds(rates, clock, 10)
    data = rates.stats_data("TOPIC_PUT_NUMS", "T")
    assert data is not None
    assert data.stats_minute.sum == 1
    stats.forget_topic("T")
    pass_seconds(rates, clock, 10)
    assert rates.stats_data("TOPIC_PUT_NUMS", "T") is None


def test_topics_of_the_system_are_not_in_the_totals_of_a_day() -> None:
    stats, clock = BrokerStats(), ManualClock()
    rates = rates_of(stats, clock)
    stats.is_system = {"broker-a", "SCHEDULE_TOPIC_XXXX"}.__contains__
    for topic, count in (("T", 5), ("broker-a", 7), ("SCHEDULE_TOPIC_XXXX", 9)):
        stats.add_put(topic, count, 50)
        stats.add_got("G", topic, count - 1, 50)
    stats.forget_topic("broker-a")
    clock.advance(DAY_MS)
    rates.sample()
    assert (stats.user_puts, stats.user_gets) == (5, 4)
    assert rates.puts_of_days.today_morning == 5
    assert rates.gets_of_days.today_morning == 4
    assert stats.put.count == 21


def test_totals_move_on_at_midnight() -> None:
    stats, clock = BrokerStats(), ManualClock()
    rates = rates_of(stats, clock)
    stats.add_put("T", 5, 50)
    rates.sample()
    clock.advance(DAY_MS)
    stats.add_put("T", 2, 20)
    rates.sample()
    puts = rates.puts_of_days
    assert (puts.yesterday_morning, puts.today_morning, puts.now) == (0, 7, 7)
    clock.advance(DAY_MS)
    stats.add_put("T", 1, 10)
    rates.sample()
    stats.add_put("T", 3, 30)
    rates.sample()
    puts = rates.puts_of_days
    assert (puts.yesterday_morning, puts.today_morning, puts.now) == (7, 8, 11)


def test_put_times_show_the_last_whole_minute() -> None:
    times = PutTimes()
    for elapsed_ms in (0, 0, 1, 9, 10, 49, 50, 999, 1000, 10_000):
        times.add(elapsed_ms)
    assert times.distribution.startswith("[<=0ms]:0 [0~10ms]:0 ")
    times.end_minute()
    assert times.distribution == (
        "[<=0ms]:2 [0~10ms]:2 [10~50ms]:2 [50~100ms]:1 [100~200ms]:0 [200~500ms]:0 "
        "[500ms~1s]:1 [1~2s]:1 [2~3s]:0 [3~4s]:0 [4~5s]:0 [5~10s]:0 [10s~]:1 "
    )
    assert times.max_ms == 10_000
    times.end_minute()
    assert times.distribution.count(":0 ") == 13
    assert times.max_ms == 10_000


def test_percentiles_lie_in_the_slot_of_the_slowest() -> None:
    times = PutTimes()
    assert times.percentile_ms(0.99) == 0.0
    for _ in range(980):
        times.add(0)
    for _ in range(20):
        times.add(30)
    times.end_minute()
    assert times.percentile_ms(0.5) == 0.0
    assert 28 < times.percentile_ms(0.99) <= 30
    times.add(60_000)
    times.end_minute()
    assert times.percentile_ms(1.0) == 10_000.0


def test_the_distribution_is_renewed_every_minute() -> None:
    stats, clock = BrokerStats(), ManualClock()
    rates = rates_of(stats, clock)
    rates.puts.add(0)
    pass_seconds(rates, clock, 59)
    assert rates.puts.distribution.startswith("[<=0ms]:0 ")
    pass_seconds(rates, clock, 1)
    assert rates.puts.distribution.startswith("[<=0ms]:1 ")
    pass_seconds(rates, clock, 60)
    assert rates.puts.distribution.startswith("[<=0ms]:0 ")


class CountingClock(ManualClock):
    """Counts how often it is read, which is once for each counter."""

    reads = 0

    def monotonic_s(self) -> float:
        self.reads += 1
        return super().monotonic_s()


def test_many_counters_are_sampled_a_part_in_each_second() -> None:
    stats, clock = BrokerStats(), CountingClock()
    rates = rates_of(stats, clock)
    count = 4 * ITEMS_PER_SAMPLE
    for number in range(count):
        stats.add_put(f"t{number}", 1, 10)
    shown = []
    for _ in range(10):
        before = clock.reads
        pass_seconds(rates, clock, 1)
        shown.append(clock.reads - before)
        stats.add_put("new", 1, 10)  # the tables may change meanwhile
    assert max(shown) <= ITEMS_PER_SAMPLE + 10
    assert sum(shown) >= count
    for number in range(count):
        stats.add_put(f"t{number}", 60, 600)
    pass_seconds(rates, clock, 10)
    assert rates.topic_put_tps("t0") > 0
    assert rates.topic_put_tps(f"t{count - 1}") > 0
