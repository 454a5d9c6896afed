"""Makes a dead letter as a program would: a consumer that refuses a message for good."""

import asyncio
from collections.abc import Sequence

from downrange.client.consumer_settings import PushConsumerSettings
from downrange.client.listeners import ConcurrentContext, ConsumeStatus
from downrange.client.message import ReceivedMessage
from downrange.client.push_consumer import PushConsumer
from downrange.client.settings import ClientSettings
from downrange.client.start_offset import ConsumeFromWhere

SECONDS_MAX = 90.0


def refuse_one(name_server: str, topic: str, group: str) -> None:
    """Returns when the first message of a topic was given back by a group that tries it once."""
    asyncio.run(_refuse_one(name_server, topic, group))


async def _refuse_one(name_server: str, topic: str, group: str) -> None:
    refused = asyncio.Event()

    async def listener(
        batch: Sequence[ReceivedMessage], context: ConcurrentContext
    ) -> ConsumeStatus:
        del batch, context
        refused.set()
        return ConsumeStatus.RECONSUME_LATER

    consumer = PushConsumer(
        group,
        client=ClientSettings(name_servers=name_server, client_ip="127.0.0.1"),
        settings=PushConsumerSettings(
            consume_from_where=ConsumeFromWhere.FIRST_OFFSET, max_reconsume_times=0
        ),
    )
    consumer.subscribe(topic)
    consumer.listen(listener)
    await consumer.start()
    try:
        await asyncio.wait_for(refused.wait(), SECONDS_MAX)
    finally:
        await consumer.shutdown()
