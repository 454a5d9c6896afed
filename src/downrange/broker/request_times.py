"""How long requests took, by code; measured only for who asks to have it measured."""

import time
from bisect import bisect_left
from collections.abc import Callable, Coroutine, Mapping
from typing import Final

from downrange.protocol.command import Command
from downrange.protocol.response_codes import ResponseCode
from downrange.remoting.connection import Answer, Connection, Handler
from downrange.remoting.errors import Refused

# The bounds of RocketMQ's rpc latency.
BOUNDS_MS: Final = (1, 3, 5, 7, 10, 100, 1000, 2000, 3000)


class Times:
    """The distribution of one kind of request."""

    __slots__ = ("counts", "sum_ms")

    def __init__(self) -> None:
        self.counts = [0] * (len(BOUNDS_MS) + 1)
        self.sum_ms = 0.0

    def add(self, elapsed_ms: float) -> None:
        """A request took this long."""
        self.counts[bisect_left(BOUNDS_MS, elapsed_ms)] += 1
        self.sum_ms += elapsed_ms


class RequestTimes:
    """Wraps handlers to note what each request took and how it ended.

    Plain sends go a shorter way that passes no handler; the times of puts tell about them. What is
    answered later, such as a pull that waits for messages, is not measured.
    """

    def __init__(self, now_s: Callable[[], float] = time.perf_counter) -> None:
        self._now_s = now_s
        self.by_codes: dict[tuple[int, int], Times] = {}  # request code, response code

    def timed(self, routes: Mapping[int, Handler]) -> dict[int, Handler]:
        """The same routes, measured."""
        return {code: self._timed(code, handler) for code, handler in routes.items()}

    def _timed(self, code: int, handler: Handler) -> Handler:
        now_s, note = self._now_s, self._note

        def serve(
            request: Command, connection: Connection
        ) -> Answer | Coroutine[None, None, Answer]:
            begin_s = now_s()
            try:
                answer = handler(request, connection)
            except Exception as error:
                note(code, _code_of_error(error), begin_s)
                raise
            if isinstance(answer, Coroutine):
                return self._wait(code, answer, begin_s)
            if answer is not None:
                note(code, _code_of(answer), begin_s)
            return answer

        return serve

    async def _wait(
        self, code: int, coroutine: Coroutine[None, None, Answer], begin_s: float
    ) -> Answer:
        try:
            answer = await coroutine
        except Exception as error:
            self._note(code, _code_of_error(error), begin_s)
            raise
        self._note(code, _code_of(answer), begin_s)
        return answer

    def _note(self, code: int, response_code: int, begin_s: float) -> None:
        times = self.by_codes.get((code, response_code))
        if times is None:
            times = self.by_codes[code, response_code] = Times()
        times.add((self._now_s() - begin_s) * 1000)


def _code_of(answer: Answer) -> int:
    # An answer that is bytes already is that of a send or a pull that went well.
    return answer.code if isinstance(answer, Command) else ResponseCode.SUCCESS


def _code_of_error(error: Exception) -> int:
    return error.code if isinstance(error, Refused) else ResponseCode.SYSTEM_ERROR
