"""The handle by which a delayed message can be taken back: base64 of five words with blanks.

v1 TOPIC BROKER TIME-MS MESSAGE-ID
"""

import base64
import binascii
from typing import Final, NamedTuple

from downrange.client.errors import InvalidMessageError

_VERSION: Final = "v1"
_WORDS: Final = 5


class RecallHandle(NamedTuple):
    """What a handle says."""

    topic: str
    broker_name: str
    timestamp_ms: str
    message_id: str


def read_recall_handle(text: str) -> RecallHandle:
    """The parts of a handle."""
    try:
        padded = text + "=" * (-len(text) % 4)
        words = base64.b64decode(padded, altchars=b"-_", validate=True).decode().split(" ")
    except (binascii.Error, UnicodeDecodeError, ValueError):
        words = []
    if len(words) < _WORDS or words[0] != _VERSION:
        raise InvalidMessageError(
            "the recall handle is not one; take it from the receipt of a delayed message", code=None
        )
    return RecallHandle(*words[1:_WORDS])
