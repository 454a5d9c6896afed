"""How long requests took, by their code and that of their answer."""

import asyncio
from typing import cast

import pytest

from downrange.broker.request_times import BOUNDS_MS, RequestTimes
from downrange.protocol.command import Command, request, response
from downrange.protocol.response_codes import ResponseCode
from downrange.remoting.connection import Answer, Connection, Handler
from downrange.remoting.errors import Refused

CODE = 34


class Clock:
    """Goes on by `step_s` with each look."""

    def __init__(self, step_s: float) -> None:
        self.now_s = 0.0
        self.step_s = step_s

    def __call__(self) -> float:
        self.now_s += self.step_s
        return self.now_s


def served(times: RequestTimes, handler: Handler) -> object:
    route = times.timed({CODE: handler})[CODE]
    # What is measured does not look at the connection.
    return route(request(CODE, opaque=1), cast("Connection", None))


def test_an_answer_counts_under_its_code_and_in_its_slot() -> None:
    times = RequestTimes(Clock(0.004))
    served(times, lambda asked, _: response(asked, ResponseCode.SUCCESS))
    served(times, lambda _asked, _: b"a whole frame")
    found = times.by_codes[CODE, ResponseCode.SUCCESS]
    assert found.sum_ms == pytest.approx(8.0)
    assert found.counts == [2 if bound == 5 else 0 for bound in (*BOUNDS_MS, None)]


def test_what_is_answered_later_is_not_measured() -> None:
    times = RequestTimes(Clock(0.001))
    assert served(times, lambda _asked, _: None) is None
    assert times.by_codes == {}


def test_a_refusal_counts_under_its_code_and_a_failure_as_system_error() -> None:
    times = RequestTimes(Clock(10.0))

    def refuse(_asked: Command, _: Connection) -> Answer:
        raise Refused(ResponseCode.NO_PERMISSION, "no")

    def fail(_asked: Command, _: Connection) -> Answer:
        raise KeyError("x")

    with pytest.raises(Refused):
        served(times, refuse)
    with pytest.raises(KeyError):
        served(times, fail)
    assert set(times.by_codes) == {
        (CODE, ResponseCode.NO_PERMISSION),
        (CODE, ResponseCode.SYSTEM_ERROR),
    }
    assert times.by_codes[CODE, ResponseCode.NO_PERMISSION].counts[-1] == 1


def test_a_handler_that_waits_is_measured_to_its_end() -> None:
    clock = Clock(0.0)
    times = RequestTimes(clock)

    async def wait(asked: Command, _: Connection) -> Answer:
        clock.now_s += 2.5
        return response(asked, ResponseCode.SUCCESS)

    async def refuse(_asked: Command, _: Connection) -> Answer:
        raise Refused(ResponseCode.SYSTEM_BUSY, "no")

    async def main() -> None:
        for handler in (wait, refuse):
            answer = served(times, handler)
            assert asyncio.iscoroutine(answer)
            try:
                await answer
            except Refused:
                assert handler is refuse

    asyncio.run(main())
    assert times.by_codes[CODE, ResponseCode.SUCCESS].sum_ms == 2500
    assert times.by_codes[CODE, ResponseCode.SYSTEM_BUSY].counts[0] == 1
