"""Messages with one key in their order: send with `order_key`, consume `in_order`."""

import asyncio
import sys

import downrange


async def main(name_servers: str) -> None:
    """The steps of three orders, each in its order."""
    async with downrange.connect(name_servers) as mq:
        for step in ("created", "paid", "shipped"):
            for order in ("a", "b", "c"):
                await mq.send("steps", f"{order} {step}".encode(), order_key=order)
        stream = mq.consume(
            "steps", group="tracking", in_order=True, start_at="first", idle_timeout_s=3
        )
        async for message in stream:
            print(message.body.decode())


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1] if len(sys.argv) > 1 else "127.0.0.1:9876"))
