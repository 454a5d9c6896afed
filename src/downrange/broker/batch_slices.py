"""A batch of very many messages enters the log in slices, and others are served between them.

A batch of 4 MiB may hold 190,000 messages. Storing them takes most of a second, for which nobody
else would be served. The whole body is checked before its first slice is stored, so that a
malformed one leaves nothing in the log. What is lost against a batch that is stored at once: other
messages may stand between two slices, and when the disk fails in the middle the first slices stay,
as if their sender had sent them one by one.
"""

from collections.abc import Callable
from itertools import pairwise
from typing import Final

from downrange.protocol.batch import MESSAGES_MAX, skip_messages
from downrange.protocol.errors import RemoteProtocolError
from downrange.runtime.slices import NextTurn
from downrange.store.appended import AppendedBatch, join_batches

SLICED_BODY_BYTES: Final = 128 * 1024  # a smaller body has at most 6,000 messages
MESSAGES_PER_SLICE: Final = 2_048


async def put_in_slices(
    body: bytes, bodies_bytes_max: int, put: Callable[[bytes], AppendedBatch]
) -> AppendedBatch:
    """Store a batch; `RemoteProtocolError` if it is malformed, and nothing is stored then.

    A batch over `bodies_bytes_max` is put at once, to be refused with the store's own words.
    """
    bounds = [0]
    bodies_bytes = 0
    while bounds[-1] < len(body):
        end, slice_bodies_bytes = skip_messages(body, bounds[-1], MESSAGES_PER_SLICE)
        bounds.append(end)
        bodies_bytes += slice_bodies_bytes
        if len(bounds) * MESSAGES_PER_SLICE > MESSAGES_MAX + 2 * MESSAGES_PER_SLICE:
            raise RemoteProtocolError(f"a batch of more than {MESSAGES_MAX} messages")
        if bodies_bytes > bodies_bytes_max:
            return put(body)
        await NextTurn()
    placed: list[AppendedBatch] = []
    for start, end in pairwise(bounds):
        placed.append(put(body[start:end]))
        await NextTurn()
    return placed[0] if len(placed) == 1 else join_batches(placed)
