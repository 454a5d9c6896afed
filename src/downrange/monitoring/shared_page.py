"""A page that takes long to make, made in slices between the other work of the event loop."""

import asyncio
import logging
from collections.abc import Callable, Generator

from downrange.monitoring.http_request import Request
from downrange.monitoring.http_server import Page, failed_page
from downrange.runtime.slices import STEPS_PER_SLICE

_log = logging.getLogger(__name__)

Deliver = Callable[[Page], None]


class SharedPage:
    """Makes one page at a time; everybody who asks meanwhile gets that one.

    `begin` returns the steps that make it. Owned by the event loop, which serves all others between
    two slices.
    """

    def __init__(
        self,
        begin: Callable[[], Generator[None, None, Page]],
        *,
        steps_per_slice: int = STEPS_PER_SLICE,
    ) -> None:
        self._begin = begin
        self._steps_per_slice = steps_per_slice
        self._waiting: list[Deliver] = []

    def __call__(self, request: Request, deliver: Deliver) -> None:
        """Have `deliver` called with the page; a `PageMaker`."""
        del request
        self._waiting.append(deliver)
        if len(self._waiting) == 1:
            asyncio.get_running_loop().call_soon(self._slice, self._begin())

    def _slice(self, steps: Generator[None, None, Page]) -> None:
        try:
            for _ in range(self._steps_per_slice):
                next(steps)
        except StopIteration as end:
            self._finish(end.value)
        except Exception:  # noqa: BLE001 - a page that fails must not end the server it describes
            _log.exception("page failed")
            self._finish(failed_page())
        else:
            asyncio.get_running_loop().call_soon(self._slice, steps)

    def _finish(self, page: Page) -> None:
        waiting, self._waiting = self._waiting, []
        for deliver in waiting:
            deliver(page)
