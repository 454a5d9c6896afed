"""The program that is killed: writes numbered messages and says which are acknowledged.

    python writer.py ROOT SEED FIRST

Prints a line "recovering" before it opens the store, "open" after it, and then the number of each
message once its bytes are durable. Message number n is the same in every run of one seed.
"""

import os
import random
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

from downrange.protocol.batch import encode_batch
from downrange.store.appended import Appended
from downrange.store.appender import NO_HOST, PlainMessage
from downrange.store.errors import PutStatus
from downrange.store.message_store import MessageStore
from downrange.store.settings import KIB, FlushMode, FlushSettings, StoreSettings

BATCH_MAX = 8
WAYS = ("one", "batch", "run")
QUEUES = tuple((topic, queue_id) for topic in ("orders", "audit") for queue_id in range(3))


def kill_settings(root: Path) -> StoreSettings:
    """Small files, so that each round makes new ones of every kind."""
    return StoreSettings(
        root=root,
        segment_bytes=256 * KIB,
        queue_entries=200,
        index_slots=500,
        index_items=2_000,
        flush=FlushSettings(mode=FlushMode.SYNC),
    )


def message(seed: int, number: int) -> tuple[str, int, bytes, bytes]:
    """Topic, queue id, body and properties of a message."""
    # Some that follow each other share a queue, so that they can be a batch.
    topic, queue_id = random.Random(f"{seed} queue {number // BATCH_MAX}").choice(QUEUES)
    rng = random.Random(f"{seed} {number}")
    body = rng.randbytes(rng.choice((0, 20, 200, 2_000)))
    properties = f"UNIQ_KEY\x01U{number}\x02KEYS\x01k{number % 50}\x02TAGS\x01t{number % 7}"
    return topic, queue_id, body, properties.encode()


def acknowledge(text: str) -> None:
    """Tell the parent at once; nothing is left in a buffer of this process."""
    os.write(1, text.encode() + b"\n")


def write_on(root: Path, seed: int, first: int) -> None:
    """Append, sync and dispatch in small random groups until somebody ends this."""
    store = MessageStore(kill_settings(root))
    acknowledge("recovering")
    store.open()
    acknowledge("open")
    rng = random.Random(f"{seed} {first} groups")
    number = first
    while True:
        for _ in range(rng.randrange(1, 12)):
            number = _put(store, seed, number, rng.choice(WAYS))
        store.flush_now()
        store.dispatch_some()
        if rng.random() < 0.05:
            job = store.begin_derived_flush()
            job.run()
            store.finish_derived_flush(job)


def _put(store: MessageStore, seed: int, number: int, way: str) -> int:
    """Append one message, or all up to the end of its group at once; returns the next number."""
    topic, queue_id, body, properties = message(seed, number)
    group = range(number, number - number % BATCH_MAX + BATCH_MAX)
    contents = [message(seed, one)[2:] for one in group]
    placed: Sequence[Appended] = []
    if way == "batch":
        batch = encode_batch([(0, body, properties) for body, properties in contents])
        placed = store.append_batch(topic, queue_id, batch)
    elif way == "run":
        run = [_plain(store, queue_id, body, properties) for body, properties in contents]
        placed = store.append_run(topic, run)
    if not placed:
        placed = [store.append(topic, queue_id, body, properties)]
    for at, put in enumerate(placed, start=number):
        store.wait_durable(put.end_offset, _teller(at))
    return number + len(placed)


def _plain(store: MessageStore, queue_id: int, body: bytes, properties: bytes) -> PlainMessage:
    tag_code, keys = store.entries.tag_code_and_keys("", 0, properties, 0)
    return queue_id, body, properties, 0, 0, 0, NO_HOST, 0, tag_code, keys


def _teller(number: int) -> Callable[[PutStatus], None]:
    def tell(status: PutStatus) -> None:
        if status is PutStatus.PUT_OK:
            acknowledge(str(number))

    return tell


if __name__ == "__main__":
    write_on(Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]))
