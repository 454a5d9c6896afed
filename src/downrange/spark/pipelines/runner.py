"""Runs a pipeline of any kind on a session, and says what it does meanwhile."""

from collections.abc import Callable
from dataclasses import dataclass, field
from threading import Event

from pyspark.sql import SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from downrange.spark.pipelines.analytics import run_analytics
from downrange.spark.pipelines.archive import start_archive
from downrange.spark.pipelines.dead_letters import run_dead_letters
from downrange.spark.pipelines.definition import (
    Analytics,
    Archive,
    DeadLetters,
    Pipeline,
    Replay,
    Transform,
)
from downrange.spark.pipelines.replay import run_replay
from downrange.spark.pipelines.streams import NOT_STARTED, STARTS_MAX
from downrange.spark.pipelines.transform import start_transform
from downrange.spark.pipelines.watching import PipelineFailedError, Watch


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """How a pipeline is run: what is there now and then an end, or until `stop` is set.

    `dry_run` is for the kinds that send messages again: they say what they would send.
    """

    once: bool
    say: Callable[[str], None]
    dry_run: bool = False
    stop: Event = field(default_factory=Event)
    hurry: Event = field(default_factory=Event)


def run_on(spark: SparkSession, pipeline: Pipeline, run: Run) -> None:
    """Run it to its end on a session in which `downrange.spark.register` was called."""
    match pipeline:
        case Replay():
            run_replay(spark, pipeline, dry_run=run.dry_run, say=run.say)
        case DeadLetters():
            run_dead_letters(spark, pipeline, dry_run=run.dry_run, say=run.say)
        case Analytics():
            run_analytics(spark, pipeline, say=run.say)
        case Archive():
            _watch(lambda: start_archive(spark, pipeline, once=run.once), run)
        case Transform():
            _watch(lambda: start_transform(spark, pipeline, once=run.once), run)
        case _:
            raise AssertionError(f"nothing runs a {type(pipeline).__name__}")


def _watch(start: Callable[[], list[StreamingQuery]], run: Run) -> None:
    """Start queries and follow them; they begin again from their checkpoints if Spark gave up.

    Spark waits ten seconds for a Python worker, which on a busy machine may not do.
    """
    for attempt in range(1, STARTS_MAX + 1):
        try:
            Watch(start(), run.stop, run.hurry, run.say).run()
        except PipelineFailedError as error:
            if NOT_STARTED not in str(error) or attempt == STARTS_MAX or run.stop.is_set():
                raise
            run.say("Spark could not start a Python worker in time; the queries start again")
        else:
            return
