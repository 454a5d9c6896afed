"""Requests of one connection whose handler waits, each in a task of its own.

A server carries out what it has read even if the peer is gone by then: a one-way message, or one
that was sent just before the connection was closed, may wait here for its topic to become durable.
"""

import asyncio
from collections.abc import Coroutine
from typing import Protocol

from downrange.protocol.command import Command, response
from downrange.protocol.response_codes import ResponseCode
from downrange.remoting.answers import Answer, answer_to_error
from downrange.remoting.turn import Turn

WAITING_REQUESTS_MAX = 4_096  # of one connection
# Bodies of all connections of a server. The receive budget counts a request only until it is
# complete, so what waits after that has a limit of its own.
WAITING_BYTES_MAX = 128 * 1024 * 1024


class Replier(Protocol):
    """The connection that gets the answers."""

    address: str

    def reply(self, answer: Answer) -> None:
        """Write an answer."""
        ...


class WaitingRequests:
    """The tasks of one connection. Owned by it; `cancel` when it is closed.

    Tasks of a server's connection, which has a `turn`, go on when the connection is closed; the
    server cancels them when it stops.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop, turn: Turn | None) -> None:
        self._loop = loop
        self._turn = turn
        self._tasks: set[asyncio.Task[None]] = set()

    def start(
        self, command: Command, coroutine: Coroutine[None, None, Answer], replier: Replier
    ) -> None:
        """Answer when the coroutine has ended; SYSTEM_BUSY if too many wait already."""
        turn, body_bytes = self._turn, len(command.body or b"")
        remark = None
        if len(self._tasks) >= WAITING_REQUESTS_MAX:
            remark = f"[OVERLOAD]{WAITING_REQUESTS_MAX} requests of this connection wait already"
        elif turn is not None and body_bytes and turn.request_bytes > WAITING_BYTES_MAX:
            remark = f"[OVERLOAD]requests of {turn.request_bytes} bytes wait already"
        if remark is not None:
            coroutine.close()
            if not command.is_one_way:
                replier.reply(response(command, ResponseCode.SYSTEM_BUSY, remark=remark))
            return
        finish = _finish(command, coroutine, replier)
        if turn is not None:
            finish = turn.watch.watched(f"{subject_of(command)} of {replier.address}", finish)
        task = self._loop.create_task(finish, name=f"code {command.code}")
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        if turn is not None:
            turn.add_request(task, body_bytes)

    def cancel(self) -> None:
        """Give up those that no server carries out."""
        if self._turn is None:
            for task in self._tasks:
                task.cancel()


async def _finish(
    command: Command, coroutine: Coroutine[None, None, Answer], replier: Replier
) -> None:
    try:
        answer = await coroutine
    except Exception as error:  # noqa: BLE001 - one bad request must not end the others
        answer = answer_to_error(error, command)
    if not command.is_one_way:
        replier.reply(answer)


def subject_of(command: Command) -> str:
    """What the watch of the event loop says of a command."""
    kind = "response to code" if command.is_response else "request code"
    return f"{kind} {command.code}"
