"""What all blocking producers and consumers are: an asyncio one that lives in the I/O thread."""

import time
from collections.abc import Callable, Coroutine
from typing import Final, Protocol, Self, TypeVar

from downrange.client.errors import ClientStateError
from downrange.client.session import ServiceState
from downrange.client.session_table import SessionTable
from downrange.sync.io_thread import IoThread, io_thread

CALL_S_MAX: Final = 30.0  # for calls without a time of their own
START_S_MAX: Final = 60.0
SHUTDOWN_S_MAX: Final = 30.0
GRACE_S: Final = 2.0  # an inner deadline shall speak first, it knows more
SYNC_SESSIONS: Final = SessionTable(nonce=time.monotonic_ns())
T = TypeVar("T")


class Startable(Protocol):
    """A producer or consumer for asyncio."""

    state: ServiceState

    async def start(self) -> None:
        """Begin."""
        ...

    async def shutdown(self) -> None:
        """End."""
        ...


class Member:
    """Starts and ends it; used in `with`. Calls may come from any thread, also several at once."""

    def __init__(self, inner: Startable) -> None:
        self._startable = inner
        self._io: IoThread | None = None

    @property
    def state(self) -> ServiceState:
        """Where in its life it is."""
        return self._startable.state

    def start(self) -> None:
        """Begin, in the I/O thread of this process."""
        if self._io is None:
            self._io = io_thread()
        self._call(self._startable.start(), START_S_MAX)
        self._io.opened(self)

    def shutdown(self) -> None:
        """End in good order."""
        self.close_at_exit(SHUTDOWN_S_MAX)

    def close_at_exit(self, timeout_s: float) -> None:
        """End within the time."""
        io = self._io
        if io is not None:
            io.closed(self)
            io.call(self._startable.shutdown(), timeout_s)

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.shutdown()

    def _call(self, coroutine: Coroutine[None, None, T], timeout_s: float = CALL_S_MAX) -> T:
        if self._io is None:
            coroutine.close()
            raise ClientStateError(f"{type(self).__name__} is not started; call start first")
        return self._io.call(coroutine, timeout_s)

    def _do(self, what: Callable[[], T]) -> T:
        """A plain call, which may wake tasks and so belongs into the I/O thread."""
        if self._io is None:
            return what()
        return self._call(_as_coroutine(what))


async def _as_coroutine(what: Callable[[], T]) -> T:
    return what()
