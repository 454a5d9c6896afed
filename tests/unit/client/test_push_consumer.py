"""A push consumer against real brokers in memory: what it consumes, from where, in batches."""

from pathlib import Path

from unit.broker.one_broker import pass_time
from unit.client.consuming import Seen, Site, until

from downrange.testing.virtual_time import run


def test_everything_is_consumed_once_and_committed(tmp_path: Path) -> None:
    async def main() -> None:
        async with Site(tmp_path, "ab") as site:
            await site.create("orders", 4)
            sent = await site.send_many("orders", 100, queues=4, broker="a")
            sent += await site.send_many("orders", 100, queues=4, broker="b", first=100)
            seen = Seen()
            consumer = site.consumer(consume_batch_size=8)
            consumer.subscribe("orders")
            consumer.listen(seen)
            async with consumer:
                await until(lambda: len(seen.messages) == 200)
                await pass_time(20)
            assert sorted(seen.bodies) == sorted(sent)
            assert max(seen.batches) == 8
            again = Seen()
            consumer = site.consumer()
            consumer.subscribe("orders")
            consumer.listen(again)
            async with consumer:
                await pass_time(30)
            assert again.messages == []

    run(main())
