"""Turns counters into rates: by second over some seconds, and sums over a minute, an hour, a day.

`sample` is called once a second by the owner. What it finds is kept in windows of few samples: a
second apart for the whole broker, ten seconds apart for each topic and group. Windows end at the
newest sample, so that a topic of this minute has an hour's sum at once; RocketMQ shows 0 until its
first ten minutes are over.
"""

from bisect import bisect_left, bisect_right
from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime

from downrange.broker.stats import BrokerStats, Tally
from downrange.protocol.bodies.statistics import BrokerStatsData, StatsWindow
from downrange.runtime.clock import Clock

SAMPLE_S = 1.0
RATE_SECONDS = (10, 60, 600)
_ITEM_SAMPLE_S = 10.0
_HOUR_SAMPLE_S = 600.0
_DAY_SAMPLE_S = 3600.0
ITEMS_PER_SAMPLE = 1_000  # about 5 ms of each second; fewer items are done in one
ROUND_SAMPLES_MAX = 8  # and more within this many seconds, before the next round begins
_OVER = object()
_SLACK_S = 0.05  # a timer may fire a little early

_SLOT_BOUNDS_MS = (10, 50, 100, 200, 500, 1000, 2000, 3000, 4000, 5000, 10_000)
_SLOT_NAMES = (
    "[<=0ms]", "[0~10ms]", "[10~50ms]", "[50~100ms]", "[100~200ms]", "[200~500ms]", "[500ms~1s]",
    "[1~2s]", "[2~3s]", "[3~4s]", "[4~5s]", "[5~10s]", "[10s~]",
)  # fmt: skip
# Finer, for percentiles: steps of 1 ms up to 20, then wider and wider, as RocketMQ has them.
_FINE_BOUNDS_MS: tuple[int, ...] = (
    *range(21), *range(22, 51, 2), *range(55, 101, 5), *range(110, 201, 10),
    *range(250, 501, 50), *range(600, 1001, 100), *range(2000, 10_001, 1000),
)  # fmt: skip


class PutTimes:
    """How long puts took: the longest ever, and the distribution of the last whole minute."""

    def __init__(self) -> None:
        self.max_ms = 0
        self.sum_ms = 0
        self._ever = [0] * (len(_FINE_BOUNDS_MS) + 1)  # of the minutes that are over
        self._slots = [0] * len(_SLOT_NAMES)
        self._fine = [0] * (len(_FINE_BOUNDS_MS) + 1)
        self._last_slots = list(self._slots)
        self._last_fine = list(self._fine)

    def add(self, elapsed_ms: int, count: int = 1) -> None:
        """So many puts took this long each."""
        if elapsed_ms <= 0:  # nearly all of them
            self._slots[0] += count
            self._fine[0] += count
            return
        self._slots[1 + bisect_right(_SLOT_BOUNDS_MS, elapsed_ms)] += count
        self._fine[bisect_left(_FINE_BOUNDS_MS, elapsed_ms)] += count
        self.max_ms = max(self.max_ms, elapsed_ms)
        self.sum_ms += elapsed_ms * count

    def end_minute(self) -> None:
        """Show what was counted so far, and count anew."""
        self._ever = [sum(pair) for pair in zip(self._ever, self._fine, strict=True)]
        self._last_slots, self._slots = self._slots, [0] * len(self._slots)
        self._last_fine, self._fine = self._fine, [0] * len(self._fine)

    @property
    def distribution(self) -> str:
        """How many puts fell into which slot, in RocketMQ's words."""
        pairs = zip(_SLOT_NAMES, self._last_slots, strict=True)
        return "".join(f"{name}:{count} " for name, count in pairs)

    def counts_since_start(self, bounds_ms: Sequence[int]) -> list[int]:
        """How many puts took at most each of these times, and more than the one before.

        The last number is of those beyond all bounds. Bounds must be among those counted by.
        """
        counts = [0] * (len(bounds_ms) + 1)
        for index, (past, now) in enumerate(zip(self._ever, self._fine, strict=True)):
            is_beyond = index == len(_FINE_BOUNDS_MS)
            slot = len(bounds_ms) if is_beyond else bisect_left(bounds_ms, _FINE_BOUNDS_MS[index])
            counts[slot] += past + now
        return counts

    def percentile_ms(self, share: float) -> float:
        """The time that this share of the puts did not exceed."""
        wanted = int(sum(self._last_fine) * share)
        passed = 0
        for index, count in enumerate(self._last_fine):
            if count and wanted <= passed + count:
                if index == len(_FINE_BOUNDS_MS):
                    return float(_FINE_BOUNDS_MS[-1])
                high = _FINE_BOUNDS_MS[index]
                low = _FINE_BOUNDS_MS[index - 1] if index else 0
                return low + (high - low) * (wanted - passed) / count
            passed += count
        return 0.0


@dataclass(slots=True)
class PullCounts:
    """Pulls that found messages and pulls that did not, and the longest one."""

    found: int = 0
    missed: int = 0
    max_ms: int = 0


@dataclass(frozen=True, slots=True)
class DayTotals:
    """Messages since the start, at midnight before, at midnight, and now."""

    yesterday_morning: int = 0
    today_morning: int = 0
    now: int = 0


@dataclass(frozen=True, slots=True)
class _Sample:
    at_s: float
    count: int
    size: int


class _Item:
    """The samples of one counter."""

    __slots__ = ("day", "hour", "minute")

    def __init__(self, now_s: float) -> None:
        # What is counted at the first look was counted since the look before.
        born = _Sample(now_s - _ITEM_SAMPLE_S, 0, 0)
        self.minute = deque([born], maxlen=7)
        self.hour = deque([born], maxlen=6)
        self.day = deque([born], maxlen=24)

    def window(self, samples: deque[_Sample], *, of_sizes: bool) -> StatsWindow:
        first, last = samples[0], self.minute[-1]
        count = last.count - first.count
        total = last.size - first.size if of_sizes else count
        elapsed_s = last.at_s - first.at_s
        return StatsWindow(
            sum=total,
            tps=total / elapsed_s if elapsed_s > 0 else 0.0,
            avgpt=total / count if count else 0.0,
        )


class Rates:
    """Rates of one broker's counters. Owned by the event loop; `sample` is due every second.

    `puts` and `pulls` are bumped by who serves them, beside the counters of `stats`.
    """

    def __init__(self, stats: BrokerStats, clock: Clock, cluster_name: str) -> None:
        self._stats = stats
        self._clock = clock
        self._cluster_name = cluster_name
        self.puts = PutTimes()
        self.pulls = PullCounts()
        # put, found, missed, transferred at each second of the last ten minutes
        self._seconds: deque[tuple[float, tuple[int, int, int, int]]] = deque(
            maxlen=RATE_SECONDS[-1] + 1
        )
        self._items: dict[tuple[str, str], _Item] = {}
        self._round: Iterator[None] = iter(())  # of samples of all items, begun every 10 s
        now_s = clock.monotonic_s()
        self._next_items_s = now_s
        self._next_minute_s = now_s + 60
        self._next_hour_s = now_s + _HOUR_SAMPLE_S
        self._next_day_s = now_s + _DAY_SAMPLE_S
        self._today = self._date()
        self.puts_of_days = DayTotals()
        self.gets_of_days = DayTotals()

    def sample(self) -> None:
        """Look at all counters whose turn it is."""
        now_s = self._clock.monotonic_s() + _SLACK_S
        stats, pulls = self._stats, self.pulls
        totals = (stats.put.count, pulls.found, pulls.missed, stats.got.count)
        self._seconds.append((now_s, totals))
        if now_s >= self._next_items_s:
            self._next_items_s = now_s + _ITEM_SAMPLE_S - _SLACK_S
            self._round = self._sample_items(now_s)
        self._sample_some()
        if now_s >= self._next_minute_s:
            self._next_minute_s = now_s + 60 - _SLACK_S
            self.puts.end_minute()
        self._sample_days()

    # --- questions -------------------------------------------------------------------------

    @property
    def put_tps(self) -> str:
        """Messages put by second over 10 s, 1 min and 10 min; a window not yet full is left out."""
        return self._text(0)

    @property
    def get_found_tps(self) -> str:
        """Pulls that found something."""
        return self._text(1)

    @property
    def get_missed_tps(self) -> str:
        """Pulls that found nothing."""
        return self._text(2)

    @property
    def get_total_tps(self) -> str:
        """All pulls; here RocketMQ writes 0.0 for a window that is not yet full."""
        return " ".join(
            str((self._tps(1, seconds) or 0.0) + (self._tps(2, seconds) or 0.0))
            for seconds in RATE_SECONDS
        )

    @property
    def get_transferred_tps(self) -> str:
        """Messages handed to consumers."""
        return self._text(3)

    def topic_put_tps(self, topic: str) -> float:
        """Messages by second that were put into a topic in the last minute."""
        return self._minute_tps("TOPIC_PUT", topic)

    def group_get_tps(self, group: str, topic: str) -> float:
        """Messages by second that a group got of a topic in the last minute."""
        return self._minute_tps("GROUP_GET", f"{topic}@{group}")

    def stats_data(self, name: str, key: str) -> BrokerStatsData | None:
        """A counter under RocketMQ's name and key; None if nothing was counted under them."""
        kind, _, what = name.rpartition("_")
        of_sizes = what == "SIZE"
        if what not in {"NUMS", "SIZE"} or (of_sizes and kind in {"BROKER_PUT", "BROKER_GET"}):
            return None
        item = self._items.get((kind, key))
        if item is None:
            is_counted = any((kind, key) == known[:2] for known in self._counters())
            return BrokerStatsData() if is_counted else None
        return BrokerStatsData(
            stats_minute=item.window(item.minute, of_sizes=of_sizes),
            stats_hour=item.window(item.hour, of_sizes=of_sizes),
            stats_day=item.window(item.day, of_sizes=of_sizes),
        )

    # --- inside ----------------------------------------------------------------------------

    def _counters(self) -> Iterator[tuple[str, str, Tally]]:
        """Kind, key and counter of everything that is counted now."""
        stats = self._stats
        for topic, tally in list(stats.put_by_topic.items()):
            yield "TOPIC_PUT", topic, tally
        for (group, topic), tally in list(stats.got_by_group.items()):
            yield "GROUP_GET", f"{topic}@{group}", tally
        for (group, topic), count in list(stats.sent_back.items()):
            yield "SNDBCK_PUT", f"{topic}@{group}", Tally(count)
        yield "BROKER_PUT", self._cluster_name, stats.put
        yield "BROKER_GET", self._cluster_name, stats.got

    def _sample_some(self) -> None:
        """Go on with the round that runs: many counters take several seconds, a part in each."""
        stats = self._stats
        total = len(stats.put_by_topic) + len(stats.got_by_group) + len(stats.sent_back)
        count_max = max(ITEMS_PER_SAMPLE, total // ROUND_SAMPLES_MAX)
        for _ in range(count_max):
            if next(self._round, _OVER) is _OVER:
                self._round = iter(())
                return

    def _sample_items(self, now_s: float) -> Iterator[None]:
        is_hour, is_day = now_s >= self._next_hour_s, now_s >= self._next_day_s
        if is_hour:
            self._next_hour_s = now_s + _HOUR_SAMPLE_S - _SLACK_S
        if is_day:
            self._next_day_s = now_s + _DAY_SAMPLE_S - _SLACK_S
        items: dict[tuple[str, str], _Item] = {}
        for kind, key, tally in self._counters():
            now_s = self._clock.monotonic_s() + _SLACK_S
            item = self._items.get((kind, key)) or _Item(now_s)
            if tally.count < item.minute[-1].count:  # forgotten meanwhile, and used again
                item = _Item(now_s)
            sample = _Sample(now_s, tally.count, tally.size)
            item.minute.append(sample)
            if is_hour:
                item.hour.append(sample)
            if is_day:
                item.day.append(sample)
            items[kind, key] = item
            yield
        self._items = items

    def _sample_days(self) -> None:
        puts, gets = self.puts_of_days, self.gets_of_days
        put_now, got_now = self._stats.user_puts, self._stats.user_gets
        today = self._date()
        if today != self._today:
            self._today = today
            self.puts_of_days = DayTotals(puts.today_morning, put_now, put_now)
            self.gets_of_days = DayTotals(gets.today_morning, got_now, got_now)
        else:
            self.puts_of_days = DayTotals(puts.yesterday_morning, puts.today_morning, put_now)
            self.gets_of_days = DayTotals(gets.yesterday_morning, gets.today_morning, got_now)

    def _date(self) -> date:
        return datetime.fromtimestamp(self._clock.wall_ms() / 1000, UTC).astimezone().date()

    def _minute_tps(self, kind: str, key: str) -> float:
        item = self._items.get((kind, key))
        return item.window(item.minute, of_sizes=False).tps if item is not None else 0.0

    def _text(self, column: int) -> str:
        rates = (self._tps(column, seconds) for seconds in RATE_SECONDS)
        return " ".join("" if rate is None else str(rate) for rate in rates)

    def _tps(self, column: int, seconds: int) -> float | None:
        if len(self._seconds) <= seconds:
            return None
        (first_s, first), (last_s, last) = self._seconds[-seconds - 1], self._seconds[-1]
        return (last[column] - first[column]) / (last_s - first_s) if last_s > first_s else 0.0
