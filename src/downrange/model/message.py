"""Messages as a program meets them; inside a broker they stay bytes."""

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True, kw_only=True, slots=True)
class Message:
    """A message to send. Tags, keys and the rest of what RocketMQ knows are properties."""

    topic: str
    body: bytes
    flag: int = 0
    properties: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True, slots=True)
class MessageExt:
    """A stored message: what was sent, and where and when it was stored.

    `body` is decompressed. `message_id` names the place of the message in its broker;
    `unique_id` is what the producer called it, empty if nobody gave it one.
    """

    topic: str
    body: bytes
    flag: int = 0
    properties: Mapping[str, str] = field(default_factory=dict)
    message_id: str
    unique_id: str = ""
    broker_name: str = ""
    queue_id: int
    queue_offset: int
    physical_offset: int
    store_size: int
    sys_flag: int
    body_crc: int
    born_timestamp_ms: int
    born_host: tuple[str, int]
    store_timestamp_ms: int
    store_host: tuple[str, int]
    reconsume_times: int = 0
    prepared_offset: int = 0
