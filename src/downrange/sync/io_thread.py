"""The thread in which all I/O of the blocking client happens, with an event loop of its own.

One a process, made when it is first needed. A child of a fork begins without one: what was started
in the parent says so when it is used, and what is started in the child gets a thread of its own.
At the end of the interpreter everything that is still open is closed, within a bound of time.
"""

import asyncio
import atexit
import contextlib
import logging
import os
import threading
import time
from collections.abc import Callable, Coroutine
from concurrent.futures import Future
from typing import Final, Protocol, TypeVar

from downrange.client.errors import ClientStateError, ClientTimeoutError

_log = logging.getLogger(__name__)

START_S_MAX: Final = 10.0
EXIT_S_MAX: Final = 15.0
LOOK_S: Final = 1.0  # how often a wait without an end looks whether there is still a thread
T = TypeVar("T")


class Closable(Protocol):
    """What is open in the thread and wants to be closed at the end."""

    def close_at_exit(self, timeout_s: float) -> None:
        """Close within the time."""
        ...


class IoThread:
    """An event loop in a daemon thread; for the process that made it, and no other."""

    def __init__(self) -> None:
        self.process_id = os.getpid()
        self.opening = threading.Lock()  # held while a client of the parent is opened anew
        self._open: dict[int, Closable] = {}
        self._loop = asyncio.SelectorEventLoop()
        self._thread = threading.Thread(target=self._run, name="downrange-io", daemon=True)
        self._is_up = threading.Event()
        self._thread.start()
        if not self._is_up.wait(START_S_MAX):
            raise ClientTimeoutError(f"the I/O thread did not start in {START_S_MAX} s")

    def _run(self) -> None:
        asyncio.set_event_loop(self._loop)
        self._loop.call_soon(self._is_up.set)
        try:
            self._loop.run_forever()
        finally:
            self._loop.close()

    def call(self, coroutine: Coroutine[None, None, T], timeout_s: float) -> T:
        """Run a coroutine there and wait for its end, at most so long."""
        future = self.begin(coroutine)
        try:
            return future.result(timeout_s)
        except TimeoutError:
            if future.done():
                raise
            raise ClientTimeoutError(
                f"no end after {timeout_s:.1f} s; whether it was carried out is not known"
            ) from None
        finally:
            future.cancel()

    def wait(self, coroutine: Coroutine[None, None, T]) -> T:
        """The same for what may take for ever, such as the next message; ^C ends it."""
        future = self.begin(coroutine)
        try:
            while True:
                try:
                    return future.result(LOOK_S)
                except TimeoutError:
                    if future.done():
                        raise
                if not self._thread.is_alive():
                    raise ClientStateError("the I/O thread has ended with the interpreter")
        finally:
            future.cancel()

    def soon(self, callback: Callable[[], object]) -> None:
        """Have something done there; nobody waits, and nothing happens if it is too late."""
        if self.process_id == os.getpid():
            with contextlib.suppress(RuntimeError):  # the loop is closed
                self._loop.call_soon_threadsafe(callback)

    def opened(self, what: Closable) -> None:
        """Close this at the end of the interpreter, unless `closed` comes before."""
        self._open[id(what)] = what

    def closed(self, what: Closable) -> None:
        """Nothing to do at the end."""
        self._open.pop(id(what), None)

    def close(self, timeout_s: float = EXIT_S_MAX) -> None:
        """Close all that is open, the last one first, and end the thread."""
        deadline_s = time.monotonic() + timeout_s
        for what in list(reversed(self._open.values())):
            try:
                what.close_at_exit(max(deadline_s - time.monotonic(), 0.1))
            except Exception as error:  # noqa: BLE001 - the others shall be closed nevertheless
                _log.warning("%r not closed in good order: %s", what, error)
        with contextlib.suppress(RuntimeError):
            self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(max(deadline_s - time.monotonic(), 0.1))

    def begin(self, coroutine: Coroutine[None, None, T]) -> Future[T]:
        """Run a coroutine there; its end is the future's, whose callbacks run there."""
        reason = None
        if self.process_id != os.getpid():
            reason = (
                f"started in process {self.process_id}, which has forked; make and start a new one "
                f"in this process"
            )
        elif threading.current_thread() is self._thread:
            reason = (
                "a blocking call from the I/O thread would wait for itself; use the asyncio client "
                "in coroutines and callbacks"
            )
        elif not self._thread.is_alive():
            reason = "the I/O thread has ended with the interpreter"
        if reason is not None:
            coroutine.close()
            raise ClientStateError(reason)
        return asyncio.run_coroutine_threadsafe(coroutine, self._loop)


class _Process:
    """The thread of this process."""

    lock = threading.Lock()
    thread: IoThread | None = None
    # Kept, not closed: closing would tell the parent's selector to forget its sockets.
    of_parents: Final[list[IoThread]] = []

    @classmethod
    def current(cls) -> IoThread:
        with cls.lock:
            if cls.thread is None:
                cls.thread = IoThread()
            return cls.thread

    @classmethod
    def after_fork(cls) -> None:
        cls.lock = threading.Lock()
        if cls.thread is not None:
            cls.of_parents.append(cls.thread)
            cls.thread = None

    @classmethod
    def at_exit(cls) -> None:
        if cls.thread is not None:
            cls.thread.close()


os.register_at_fork(after_in_child=_Process.after_fork)
atexit.register(_Process.at_exit)


def io_thread() -> IoThread:
    """The I/O thread of this process."""
    return _Process.current()
