"""Runs a service as a process: event loop, signals, log lines, exit code."""

import asyncio
import errno
import gc
import logging
import signal
import sys
from collections.abc import Callable
from typing import Final, Protocol

from downrange.app.event_loop import loop_factory
from downrange.app.systemd import READY, STOPPING, notify
from downrange.runtime.clock import SystemClock
from downrange.runtime.durable_file import DurableFileError
from downrange.runtime.log_limit import PERIOD_S, LimitedHandler, LogLimit
from downrange.runtime.log_lines import JsonFormatter, OneLineFormatter
from downrange.runtime.service import OnFailure
from downrange.store.errors import StoreError

_log = logging.getLogger(__name__)

EXIT_OK = 0
EXIT_FAILED = 1
COLLECT_AFTER = 50_000  # objects more than before; Python's own number is 700


class StartError(Exception):
    """The process cannot start; the text is all a user needs to read."""


class Service(Protocol):
    """What a process runs."""

    async def start(self) -> str:
        """Begin to serve; returns the address."""
        ...

    async def stop(self) -> None:
        """End in good order."""
        ...


LOG_FORMATS: Final = ("text", "json")


def log_to_stderr(level: int = logging.INFO, form: str = LOG_FORMATS[0]) -> None:
    """Send the log of this process to its standard error, and nowhere else."""
    handler = LimitedHandler(sys.stderr, LogLimit(SystemClock().monotonic_s))
    handler.setFormatter(JsonFormatter() if form == "json" else OneLineFormatter())
    root = logging.getLogger()
    root.handlers = [handler]
    root.setLevel(level)


def run_service(build: Callable[[OnFailure], Service]) -> int:
    """Run until SIGTERM, SIGINT or a failure; returns the exit code.

    `build` is called inside the loop. A signal during the start ends that; what was started is
    stopped in order. A second signal ends the process at once.
    """
    try:
        with asyncio.Runner(loop_factory=loop_factory()) as runner:
            return runner.run(_serve(build))
    except StartError as error:
        _log.critical("cannot start: %s", error)
        return EXIT_FAILED


async def _serve(build: Callable[[OnFailure], Service]) -> int:
    loop = asyncio.get_running_loop()
    end: asyncio.Future[int] = loop.create_future()

    def finish(code: int) -> None:
        if not end.done():
            end.set_result(code)

    def on_signal(number: signal.Signals) -> None:
        _log.info("stopping on %s", number.name)
        for known in (signal.SIGTERM, signal.SIGINT):
            loop.remove_signal_handler(known)
        finish(EXIT_OK)

    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, on_signal, number)
    _report_suppressed(loop)
    service = build(lambda _name, _error: finish(EXIT_FAILED))
    starting = loop.create_task(service.start(), name="start")
    await asyncio.wait((starting, end), return_when=asyncio.FIRST_COMPLETED)
    if not starting.done():
        _log.info("the start is given up")
        starting.cancel()
        await asyncio.wait((starting,))
    try:
        if not starting.cancelled():
            starting.result()
    except (OSError, DurableFileError, StoreError) as error:
        await service.stop()
        raise StartError(_in_words(error)) from error
    _calm_collector()
    if not end.done():
        notify(READY)
    code = await end
    notify(STOPPING)
    await service.stop()
    _log.info("stopped")
    return code


def _report_suppressed(loop: asyncio.AbstractEventLoop) -> None:
    """Have the log say how many lines it left out, even if nothing else is logged."""
    for handler in logging.getLogger().handlers:
        if isinstance(handler, LimitedHandler):
            handler.report_suppressed()
    loop.call_later(PERIOD_S, _report_suppressed, loop)


def _calm_collector() -> None:
    """Have the collector of cycles look less often, and never again at what the start made.

    The way of a message makes no cycles, but it makes many small tuples, and their number alone
    would call the collector hundreds of times a second.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(COLLECT_AFTER, 20, 20)


def _in_words(error: Exception) -> str:
    if isinstance(error, OSError) and error.errno == errno.EADDRINUSE:
        return f"{error.strerror}; stop the process that is listening there, or choose another port"
    return str(error)
