"""`python -m examples.demo`, which is `make demo`: exit code 0 if everything was as it must be."""

import argparse
import logging
import signal
import sys
from collections.abc import Sequence
from datetime import UTC, datetime
from importlib.util import find_spec
from pathlib import Path
from types import FrameType
from typing import Final, NoReturn

from examples.demo.machine import MissingError, find_java

EVENTS: Final = 300_000
EVENTS_MIN: Final = 100
EXIT_FAILED: Final = 1
EXIT_MISSING: Final = 2
EXIT_STOPPED: Final = 130


def main(argv: Sequence[str] | None = None) -> int:
    """Look at the machine, run the tour; returns the exit code."""
    parser = argparse.ArgumentParser(prog="demo", description=__doc__)
    parser.add_argument("--events", type=int, default=EVENTS, help="how many (%(default)s)")
    parser.add_argument("--seed", type=int, default=1, help="of the events (%(default)s)")
    parser.add_argument(
        "--out", type=Path, default=Path("build/demo"), help="for the results (%(default)s)"
    )
    arguments = parser.parse_args(argv)
    if arguments.events < EVENTS_MIN:
        parser.error(f"--events is {arguments.events}, but must be at least {EVENTS_MIN}")
    try:
        _check_packages()
        find_java()
    except MissingError as error:
        sys.stderr.write(f"demo: {error}\n")
        return EXIT_MISSING
    signal.signal(signal.SIGTERM, _stop)
    try:
        return _run(arguments)
    except KeyboardInterrupt:
        sys.stderr.write("demo: stopped\n")
        return EXIT_STOPPED


def _check_packages() -> None:
    missing = [name for name in ("downrange", "pyspark", "rich") if find_spec(name) is None]
    if missing:
        raise MissingError(
            f"this Python ({sys.executable}) has no {', '.join(missing)}. Run `make demo`, or "
            f"install with\n    {sys.executable} -m pip install -e '.[dev]'"
        )


def _run(arguments: argparse.Namespace) -> int:
    # After the check: these need what may be missing.
    from rich.console import Console  # noqa: PLC0415

    from examples.demo.revenue import PipelineError  # noqa: PLC0415
    from examples.demo.screen import Screen  # noqa: PLC0415
    from examples.demo.tour import TourPlan, WrongResultError, run_tour  # noqa: PLC0415

    arguments.out.mkdir(parents=True, exist_ok=True)
    log = arguments.out / "demo.log"
    logging.basicConfig(filename=log, filemode="w", format="%(asctime)s %(name)s %(message)s")
    screen = Screen(Console())
    now = datetime.now(UTC)
    plan = TourPlan(
        events=arguments.events,
        seed=arguments.seed,
        last_hour=now.replace(minute=0, second=0, microsecond=0),
        folder=arguments.out,
    )
    try:
        run_tour(plan, screen)
    except (PipelineError, WrongResultError, TimeoutError, OSError) as error:
        screen.fail(f"{error}\nmore is in {log} and {arguments.out / 'spark.log'}")
        return EXIT_FAILED
    return 0


def _stop(_number: int, _frame: FrameType | None) -> NoReturn:
    raise KeyboardInterrupt


if __name__ == "__main__":
    sys.exit(main())
