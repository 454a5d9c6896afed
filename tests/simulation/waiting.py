"""Virtual time that goes by."""

import asyncio


async def pass_time(seconds: float) -> None:
    """Let virtual time go by."""
    loop = asyncio.get_running_loop()
    future = loop.create_future()
    handle = loop.call_later(seconds, _wake, future)
    try:
        await future
    finally:
        handle.cancel()


def _wake(future: "asyncio.Future[None]") -> None:
    if not future.done():
        future.set_result(None)
