"""Orders of an invented shop: a day of them, in the order of their time, a few of them broken."""

import json
import random
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final

HOURS: Final = 25  # a day, and an hour that is still open when the demonstration ends
BROKEN_EVERY: Final = 2_000
LATE_S_MAX: Final = 300
CUSTOMERS: Final = 20_000
REGIONS: Final = {"north": 0.34, "south": 0.27, "east": 0.21, "west": 0.18}
PRODUCTS: Final = {  # cents for one, how often it is bought
    "espresso beans 1 kg": (1_890, 30),
    "filter papers": (349, 22),
    "hand grinder": (5_900, 6),
    "travel mug": (2_450, 14),
    "milk pitcher": (1_795, 9),
    "espresso machine": (48_900, 2),
    "descaler": (890, 12),
    "tasting set": (2_990, 5),
}
# How busy each hour of a day is; the shop sleeps at four and is full at noon and at eight.
BUSY: Final = (3, 2, 1, 1, 1, 2, 4, 7, 9, 10, 11, 13, 14, 12, 10, 9, 9, 10, 12, 15, 16, 13, 9, 5)


@dataclass(frozen=True, slots=True)
class Event:
    """One message: its body as it goes out, and what the sums at the end are compared with."""

    body: bytes
    key: str
    region: str
    hour: datetime | None  # None: the body is broken
    cents: int


def make_events(count: int, first_hour: datetime, chance: random.Random) -> Iterator[Event]:
    """So many events from `first_hour` on; the same chance gives the same events."""
    weights = [BUSY[(first_hour.hour + hour) % 24] for hour in range(HOURS)]
    shares = _shares(count, weights)
    regions, region_weights = list(REGIONS), list(REGIONS.values())
    products = list(PRODUCTS)
    product_weights = [often for _, often in PRODUCTS.values()]
    number = 0
    for hour, share in enumerate(shares):
        begin = first_hour + timedelta(hours=hour)
        picked_regions = chance.choices(regions, region_weights, k=share)
        picked_products = chance.choices(products, product_weights, k=share)
        for index in range(share):
            number += 1
            late_s = chance.random() * LATE_S_MAX
            second = max(0.0, index * 3600 / share - late_s)
            order: dict[str, object] = {
                "order": number,
                "at": (begin + timedelta(seconds=second)).isoformat(timespec="milliseconds"),
                "customer": f"C{chance.randrange(CUSTOMERS):05d}",
                "region": picked_regions[index],
                "product": picked_products[index],
                "quantity": 1 + (chance.random() < 0.2) + (chance.random() < 0.05),
                "cents": PRODUCTS[picked_products[index]][0],
            }
            yield _event(order, begin, is_broken=number % BROKEN_EVERY == 0, chance=chance)


def _shares(count: int, weights: list[int]) -> list[int]:
    """The count in whole parts, by weight; the last part takes what rounding leaves."""
    total = sum(weights)
    shares = [count * weight // total for weight in weights]
    shares[-1] += count - sum(shares)
    return shares


def _event(
    order: dict[str, object], hour: datetime, *, is_broken: bool, chance: random.Random
) -> Event:
    key, region = f"O{order['order']}", str(order["region"])
    if is_broken:
        return Event(_broken(order, chance), key, region, None, 0)
    cents = int(str(order["cents"])) * int(str(order["quantity"]))
    return Event(json.dumps(order, separators=(",", ":")).encode(), key, region, hour, cents)


def _broken(order: dict[str, object], chance: random.Random) -> bytes:
    """What happens in real life: a torn body, a price as words, another program's body."""
    kind = chance.randrange(3)
    if kind == 0:
        return json.dumps(order).encode()[:40]
    if kind == 1:
        return json.dumps(order | {"cents": "eighteen euro"}).encode()
    return b"<order><number>17</number></order>"
