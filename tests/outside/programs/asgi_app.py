"""A web application for an ASGI server that sends what is posted and shows what it has consumed."""

import asyncio
import json
import os
from collections.abc import Awaitable, Callable, MutableMapping

import downrange

Event = MutableMapping[str, object]
got: list[str] = []
mq = downrange.connect(os.environ["NAME_SERVER"])


async def _consume() -> None:
    async for message in mq.consume("asgi", group="asgi-app", start_at="first"):
        got.append(message.body.decode())  # noqa: PERF401 - seen while it grows


async def _live(
    receive: Callable[[], Awaitable[Event]], send: Callable[[Event], Awaitable[None]]
) -> None:
    await receive()
    await mq.open()
    consuming = asyncio.ensure_future(_consume())
    await send({"type": "lifespan.startup.complete"})
    await receive()
    await mq.aclose()
    await consuming
    await send({"type": "lifespan.shutdown.complete"})


async def app(
    scope: Event,
    receive: Callable[[], Awaitable[Event]],
    send: Callable[[Event], Awaitable[None]],
) -> None:
    """POST sends the body, GET shows what has come."""
    if scope["type"] == "lifespan":
        await _live(receive, send)
        return
    answer: object = got
    if scope["method"] == "POST":
        body = (await receive())["body"]
        assert isinstance(body, bytes)
        answer = (await mq.send("asgi", body)).message_id
    await send({"type": "http.response.start", "status": 200, "headers": []})
    await send({"type": "http.response.body", "body": json.dumps(answer).encode()})
