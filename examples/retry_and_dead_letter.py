"""What fails comes again, what is hopeless goes to the dead letters at once."""

import asyncio
import sys

import downrange


async def main(name_servers: str) -> None:
    """One message that succeeds at the second try, one that never will."""
    async with downrange.connect(name_servers) as mq:
        await mq.send("payments", b"try me twice")
        await mq.send("payments", b"hopeless")
        async with mq.consume("payments", group="retrying", start_at="first") as stream:
            async for message in stream:
                print("got", message.body.decode(), "try", message.reconsume_times + 1)
                if message.body == b"hopeless":
                    stream.retry(message, delay_level=-1)
                elif message.reconsume_times == 0:
                    stream.retry(message, delay_level=1)  # after one second
                else:
                    stream.stop()
        stream = mq.consume("%DLQ%retrying", group="burial", start_at="first", idle_timeout_s=10)
        async for message in stream:
            print("dead", message.body.decode())
            stream.stop()


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1] if len(sys.argv) > 1 else "127.0.0.1:9876"))
