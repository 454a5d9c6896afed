"""The tour itself: cluster, producer, consumer group, Spark, results; and whether they agree."""

import asyncio
import random
import shutil
import tempfile
import time
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path
from typing import Final

import uvloop

from downrange.embedded.dev_cluster import DevCluster
from examples.demo.chart import draw
from examples.demo.orders import HOURS, make_events
from examples.demo.revenue import BROKEN, REVENUE, Outcome, run_pipeline, spark_session
from examples.demo.screen import Screen
from examples.demo.traffic import Consumed, Produced, consume, count_messages, produce

PRODUCE_S_MAX: Final = 300.0
CONSUME_S_MAX: Final = 20.0
COUNT_S_MAX: Final = 10.0
SPARK_S_MAX: Final = 600.0
CONSUMED_SHARE: Final = 5  # the group looks at a fifth of the orders


class WrongResultError(Exception):
    """The parts do not agree; nothing of the kind may ever happen."""


@dataclass(frozen=True, slots=True)
class TourPlan:
    """How much, from when, and where the results go."""

    events: int
    seed: int
    last_hour: datetime
    folder: Path

    @property
    def first_hour(self) -> datetime:
        """The first hour with orders."""
        return self.last_hour - timedelta(hours=HOURS - 1)

    @property
    def chart(self) -> Path:
        """The picture."""
        return self.folder / "revenue.svg"

    @property
    def files(self) -> Path:
        """The Parquet files."""
        return self.folder / "revenue.parquet"


def run_tour(plan: TourPlan, screen: Screen) -> None:
    """All of it, in order; results are in the folder of the plan when it returns."""
    plan.folder.mkdir(parents=True, exist_ok=True)
    began_s = time.monotonic()
    screen.step("a cluster in this process: name server and broker (downrange dev is the same)")
    with (
        tempfile.TemporaryDirectory(prefix="downrange-demo-") as scratch,
        DevCluster(loop_factory=uvloop.new_event_loop) as cluster,
    ):
        servers = cluster.name_servers
        screen.done(f"up after {time.monotonic() - began_s:.2f} s, name server {servers}")
        produced = _produce(plan, servers, screen)
        consumed = _consume(plan, servers, screen)
        outcome, spark_start_s = _spark(plan, Path(scratch), servers, screen)
        _check(plan, produced, outcome)
        closed = sum(row.orders for row in outcome.rows)
        rows_count = asyncio.run(count_messages(servers, REVENUE, len(outcome.rows), COUNT_S_MAX))
        broken_count = asyncio.run(count_messages(servers, BROKEN, produced.broken, COUNT_S_MAX))
    _same("rows in the topic of results", rows_count, len(outcome.rows))
    _same("messages in the topic of broken orders", broken_count, produced.broken)
    screen.revenue(outcome.rows)
    screen.rates(
        [
            ("produced, in batches", produced.events, produced.seconds),
            ("consumed by the group, one by one", consumed.messages, consumed.seconds),
            ("read by three Spark queries", outcome.rows_in, outcome.seconds),
        ]
    )
    screen.done(f"Spark itself took {spark_start_s:.1f} s to start")
    screen.done(
        f"{closed:,} orders in {len(outcome.rows)} rows, to the cent what was sent; "
        f"{produced.events - produced.broken - closed:,} in the hour that is still open, "
        f"{produced.broken} broken ones in the topic {BROKEN}"
    )
    screen.done(f"chart: {plan.chart}    Parquet: {plan.files}")
    screen.done(f"all of it took {time.monotonic() - began_s:.0f} s")


def _produce(plan: TourPlan, servers: str, screen: Screen) -> Produced:
    screen.step(f"{plan.events:,} orders of one day, sent by the client in batches")
    events = make_events(plan.events, plan.first_hour, random.Random(plan.seed))
    with screen.bar("produced", plan.events) as show:
        counting = _Counting(show)
        produced = asyncio.run(
            _in_time(produce(servers, events, counting.add), PRODUCE_S_MAX, "the producer")
        )
    screen.done(f"{produced.events:,} sent, {produced.broken} of them broken on purpose")
    return produced


def _consume(plan: TourPlan, servers: str, screen: Screen) -> Consumed:
    wanted = max(plan.events // CONSUMED_SHARE, 1)
    screen.step(f"the consumer group fraud-check looks at {wanted:,} of them")
    with screen.bar("consumed", wanted) as show:
        consumed = asyncio.run(consume(servers, wanted, CONSUME_S_MAX, show))
    screen.done(f"{consumed.messages:,} seen, {consumed.suspicious:,} of them suspicious")
    return consumed


def _spark(plan: TourPlan, scratch: Path, servers: str, screen: Screen) -> tuple[Outcome, float]:
    screen.step("a Spark pipeline: JSON, SQL over hours, to a topic and to Parquet")
    began_s = time.monotonic()
    with spark_session(scratch, plan.folder / "spark.log") as spark:
        start_s = time.monotonic() - began_s
        with screen.bar("rows read", plan.events * 3) as show:
            outcome = run_pipeline(spark, servers, scratch, SPARK_S_MAX, show)
    shutil.rmtree(plan.files, ignore_errors=True)
    shutil.copytree(scratch / "revenue.parquet", plan.files)
    plan.chart.write_text(draw(outcome.rows, "revenue by hour and region"), encoding="utf-8")
    return outcome, start_s


def _check(plan: TourPlan, produced: Produced, outcome: Outcome) -> None:
    """Whether each window that is over has exactly what was sent into it."""
    found = {(row.hour, row.region): (row.orders, row.cents) for row in outcome.rows}
    sent = {
        cell: (count, produced.cents[cell])
        for cell, count in produced.orders.items()
        if cell[0] < plan.last_hour
    }
    _same("hours and regions with orders", len(found), len(sent))
    for cell, expected in sorted(sent.items()):
        _same(f"orders and cents at {cell[0]:%H:%M} in {cell[1]}", found.get(cell), expected)


def _same(what: str, found: object, expected: object) -> None:
    if found != expected:
        raise WrongResultError(f"{what}: found {found}, but {expected} is right")


async def _in_time(work: Coroutine[None, None, Produced], limit_s: float, who: str) -> Produced:
    try:
        async with asyncio.timeout(limit_s):
            return await work
    except TimeoutError:
        raise TimeoutError(f"{who} was not done in {limit_s:.0f} s") from None


class _Counting:
    """Makes a sum of parts."""

    def __init__(self, show: Callable[[int], None]) -> None:
        self._show = show
        self._total = 0

    def add(self, count: int) -> None:
        self._total += count
        self._show(self._total)
