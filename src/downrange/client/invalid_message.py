"""A stored message that cannot be decoded: where it is, why, and as much of it as can be read."""

from dataclasses import dataclass, field
from enum import StrEnum

from downrange.client.message import ReceivedMessage
from downrange.model.topics import MessageQueue
from downrange.protocol.properties import decode_properties


class InvalidMessagePolicy(StrEnum):
    """What a consumer does with a message that it cannot decode, unless a hook takes it.

    DEAD_LETTER publishes the raw body to the dead-letter topic of the group, then goes on. SKIP
    goes on at once. STOP stops the queue in front of the message; other queues go on.
    """

    DEAD_LETTER = "DEAD_LETTER"
    SKIP = "SKIP"
    STOP = "STOP"


@dataclass(frozen=True, slots=True, kw_only=True)
class InvalidMessage:
    """What a consumer received instead of a message. `body` is as stored: not decompressed.

    If not even the fields of the record can be told apart, `is_readable` is False, `body` is the
    whole record, and only queue and offset are known.
    """

    queue: MessageQueue
    queue_offset: int
    reason: str
    body: bytes
    physical_offset: int = -1  # unknown
    sys_flag: int = 0
    flag: int = 0
    born_timestamp_ms: int = 0
    store_timestamp_ms: int = 0
    reconsume_times: int = 0
    properties_text: bytes = field(default=b"", repr=False)
    is_readable: bool = True

    @property
    def properties(self) -> dict[str, str]:
        """The properties of the message; empty if the record is not readable."""
        return decode_properties(self.properties_text)

    def __str__(self) -> str:
        queue = self.queue
        return (
            f"message at topic={queue.topic} broker={queue.broker_name} queue={queue.queue_id} "
            f"offset={self.queue_offset}"
        )


def invalid_record(raw: ReceivedMessage, reason: str) -> InvalidMessage:
    """A record whose fields can be read and whose body cannot."""
    return InvalidMessage(
        queue=raw.queue,
        queue_offset=raw.queue_offset,
        reason=reason,
        body=raw.body,
        physical_offset=raw.physical_offset,
        sys_flag=raw.sys_flag,
        flag=raw.flag,
        born_timestamp_ms=raw.born_timestamp_ms,
        store_timestamp_ms=raw.store_timestamp_ms,
        reconsume_times=raw.reconsume_times,
        properties_text=raw.properties_text,
    )
