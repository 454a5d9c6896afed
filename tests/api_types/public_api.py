"""The public names as a program outside sees them; checked by mypy, never run.

An `ignore` here says that mypy must complain: `make types` fails if it does not.
"""

from dataclasses import dataclass
from datetime import UTC, datetime
from typing import assert_type

import downrange
from downrange import sync


@dataclass
class Order:
    number: int


async def short_way() -> None:
    async with downrange.connect("127.0.0.1:9876") as mq:
        assert_type(mq, downrange.Client)
        receipt = await mq.send("orders", b"", tag="new", key="42", delay_s=5, order_key="c")
        assert_type(receipt, downrange.SendReceipt)
        await mq.send("orders", "text")  # type: ignore[arg-type]
        await mq.send("orders", b"", taag="new")  # type: ignore[call-arg]
        await mq.send("orders", b"", delay_s="5")  # type: ignore[arg-type]
        stream = mq.consume("orders", group="g", tags="a || b", start_at=datetime.now(UTC))
        assert_type(stream, downrange.MessageStream)
        async for message in stream:
            assert_type(message, downrange.ReceivedMessage)
            assert_type(message.body, bytes)
            assert_type(message.tag, str | None)
            stream.retry(message, delay_level=3)
        mq.consume("orders")  # type: ignore[call-arg]
        mq.consume("orders", group="g", start_at="middle")  # type: ignore[arg-type]


def blocking() -> None:
    with sync.connect(["127.0.0.1:9876"]) as mq:
        assert_type(mq.send("orders", b""), downrange.SendReceipt)
        for message in mq.consume("orders", group="g"):
            assert_type(message, downrange.ReceivedMessage)
    client = downrange.ClientSettings(name_servers="127.0.0.1:9876")
    with sync.Producer("p", client=client) as producer:
        receipt = producer.send(downrange.Message("orders", b""), timeout_s=1)
        assert_type(receipt.status, downrange.SendStatus)
    with sync.LitePullConsumer("g", client=client) as lite:
        assert_type(lite.poll(), list[downrange.ReceivedMessage])


app = downrange.App("127.0.0.1:9876")


@app.on("orders", group="g")
async def handle(order: Order) -> None:
    assert_type(order, Order)


@app.on("refunds", group="g", on_undecodable="drop")
def handle_message(order: Order, message: downrange.ReceivedMessage) -> None: ...


@app.on("other", group="g", on_undecodable="nonsense")  # type: ignore[arg-type]
def handle_other(order: Order) -> None: ...


@app.on("other", group="g")  # type: ignore[type-var]
def handle_three(order: Order, message: downrange.ReceivedMessage, third: int) -> None: ...


async def handlers_stay_functions() -> None:
    await handle(Order(1))
    await handle("text")  # type: ignore[arg-type]


async def tls_and_invalid_messages() -> None:
    tls = downrange.TlsSettings(ca_file="ca.pem", server_name="brokers.example")
    assert_type(tls.verify, bool)
    async with downrange.connect("127.0.0.1:9876", tls=tls):
        pass
    with sync.connect("127.0.0.1:9876", tls=tls):
        pass
    downrange.TlsSettings(verify="no")  # type: ignore[arg-type]
    settings = downrange.PushConsumerSettings(invalid_messages=downrange.InvalidMessagePolicy.SKIP)
    consumer = downrange.PushConsumer("g", client=downrange.ClientSettings(), settings=settings)
    assert_type(consumer.invalid_message_counts, downrange.InvalidMessageCounts)

    def hook(invalid: downrange.InvalidMessage) -> None:
        assert_type(invalid.queue, downrange.MessageQueue)
        assert_type(invalid.reason, str)

    consumer.on_invalid_message = hook
