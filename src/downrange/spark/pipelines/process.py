"""A pipeline as a process: signals, lines of progress, exit codes."""

import signal
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from threading import Event
from types import FrameType
from typing import Final

from py4j.protocol import Py4JError
from pyspark.errors import PySparkException

from downrange.client.errors import RocketMQError
from downrange.spark.pipelines.archive_errors import ArchiveError
from downrange.spark.pipelines.definition import Pipeline
from downrange.spark.pipelines.runner import Run, run_on
from downrange.spark.pipelines.session import open_session
from downrange.spark.pipelines.toml_file import PipelineFileError, load
from downrange.spark.pipelines.watching import PipelineFailedError

EXIT_OK: Final = 0
EXIT_FAILED: Final = 1
EXIT_USAGE: Final = 2
TEXT_MAX: Final = 4_000  # of an error; Spark's may hold whole plans
_FAILURES: Final = (
    PipelineFailedError, ArchiveError, PySparkException, Py4JError, RocketMQError, OSError,
)  # fmt: skip


def run_file(path: Path, environment: Mapping[str, str], *, once: bool, dry_run: bool) -> int:
    """Run the pipeline of a file until it is done or a signal comes; returns the exit code."""
    try:
        pipeline = load(path, environment)
    except PipelineFileError as error:
        return _fail(str(error), EXIT_USAGE)
    run = Run(once=once, dry_run=dry_run, say=say)
    try:
        session = open_session(pipeline)
        try:
            # Spark has set handlers of its own by now, and ours come last.
            with _signals(run.stop, run.hurry):
                run_on(session, pipeline, run)
        finally:
            session.stop()
    except _FAILURES as error:
        return _fail(f"{pipeline.name}: {error}"[:TEXT_MAX], EXIT_FAILED)
    say(f"{pipeline.name}: {'stopped' if run.stop.is_set() else 'done'}")
    return EXIT_OK


def check_file(path: Path, environment: Mapping[str, str]) -> int:
    """Say whether a file is right, without running anything."""
    try:
        pipeline = load(path, environment)
    except PipelineFileError as error:
        return _fail(str(error), EXIT_USAGE)
    say(f"{path}: right; {_about(pipeline)}")
    return EXIT_OK


def list_folder(folder: Path, environment: Mapping[str, str]) -> int:
    """A line for each file of a folder that ends with .toml and has a kind."""
    for path in sorted(folder.glob("*.toml")):
        try:
            say(f"{path.name}: {_about(load(path, environment))}")
        except PipelineFileError as error:
            say(f"{path.name}: wrong; {str(error).removeprefix(f'{path}: ')}")
    return EXIT_OK


def say(text: str) -> None:
    """A line for whoever runs this."""
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


def _about(pipeline: Pipeline) -> str:
    return f"{pipeline.kind} {pipeline.name!r} at {pipeline.name_servers}"


def _fail(text: str, code: int) -> int:
    sys.stderr.write(f"downrange pipeline: {text}\n")
    return code


@contextmanager
def _signals(stop: Event, hurry: Event) -> Iterator[None]:
    """The first signal asks for a stop, the second one for a quick one."""

    def on_signal(_number: int, _frame: FrameType | None) -> None:
        if stop.is_set():
            hurry.set()
        stop.set()

    before = {
        number: signal.signal(number, on_signal) for number in (signal.SIGINT, signal.SIGTERM)
    }
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
