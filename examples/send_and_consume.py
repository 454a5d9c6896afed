"""Sends five orders and consumes them: python send_and_consume.py [NAME SERVER]."""

import asyncio
import sys

import downrange


async def main(name_servers: str) -> None:
    """Send, then consume until nothing comes for a while."""
    async with downrange.connect(name_servers) as mq:
        for number in range(5):
            receipt = await mq.send("orders", b"order %d" % number, tag="new", key=str(number))
            print("sent", receipt.message_id, "to", receipt.queue)
        stream = mq.consume(
            "orders", group="billing", tags="new || paid", start_at="first", idle_timeout_s=3
        )
        async for message in stream:  # leaving the body acknowledges
            print("got", message.body.decode(), message.keys)


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1] if len(sys.argv) > 1 else "127.0.0.1:9876"))
