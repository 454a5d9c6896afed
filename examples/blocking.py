"""The same for programs that block: python blocking.py [NAME SERVER]."""

import queue
import sys

from downrange import ClientSettings, ConsumeFromWhere, PushConsumerSettings, sync
from downrange.client.listeners import Batch, ConcurrentContext


def main(name_servers: str) -> None:
    """Send with the short form, consume with a listener that may block."""
    arrived: queue.Queue[str] = queue.Queue()

    def listener(batch: Batch, _context: ConcurrentContext) -> None:
        for message in batch:
            arrived.put(message.body.decode())  # several threads do this at the same time

    consumer = sync.PushConsumer(
        "warehouse",
        client=ClientSettings(name_servers=name_servers),
        settings=PushConsumerSettings(consume_from_where=ConsumeFromWhere.FIRST_OFFSET),
    )
    consumer.subscribe("parcels")
    consumer.listen(listener)
    with sync.connect(name_servers) as mq:
        for number in range(3):
            mq.send("parcels", b"parcel %d" % number)
        with consumer:
            for _ in range(3):
                print("got", arrived.get(timeout=30))


if __name__ == "__main__":
    main(sys.argv[1] if len(sys.argv) > 1 else "127.0.0.1:9876")
