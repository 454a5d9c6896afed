"""Handlers as a process: downrange run shop_app:app -n 127.0.0.1:9876."""

from dataclasses import dataclass

import msgspec

import downrange

app = downrange.App("127.0.0.1:9876")


class Order(msgspec.Struct):
    """What producers send as JSON."""

    number: int
    price: float


@dataclass
class Bill:
    """What this app sends."""

    order: int
    total: float


@app.on("shop-orders", group="billing", start_at="first")
async def bill(order: Order, message: downrange.ReceivedMessage) -> None:
    """A coroutine function runs on the event loop."""
    total = round(order.price * 1.2, 2)
    print(f"order {order.number} with tag {message.tag}", flush=True)
    await app.mq.send("shop-bills", msgspec.json.encode(Bill(order.number, total)))


@app.on("shop-bills", group="printing", start_at="first")
def print_bill(to_print: Bill) -> None:
    """A plain function runs in a thread and may block."""
    print(f"bill {to_print.order} over {to_print.total}", flush=True)
