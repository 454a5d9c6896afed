"""Headers of sending: a message, a batch, a reply, one given back by a consumer, one recalled.

A send travels under long names (SEND_MESSAGE, SEND_REPLY_MESSAGE) or under the letters a to n
(SEND_MESSAGE_V2, SEND_BATCH_MESSAGE, SEND_REPLY_MESSAGE_V2); both are a `SendRequest` here.
"""

from collections.abc import Mapping
from typing import Final

import msgspec

from downrange.protocol.headers.fields import Header, decode_header
from downrange.protocol.integers import Int32, Int64
from downrange.protocol.request_codes import RequestCode


class SendRequest(Header, frozen=True, kw_only=True):
    """SEND_MESSAGE and its kin; whether it is a batch is said by `batch`, not by the code."""

    producer_group: str
    topic: str
    default_topic: str
    default_topic_queue_nums: Int32
    queue_id: Int32
    sys_flag: Int32
    born_timestamp: Int64
    flag: Int32
    properties: str | None = None
    reconsume_times: Int32 | None = None
    unit_mode: bool = False
    batch: bool = False
    max_reconsume_times: Int32 | None = None
    broker_name: str | None = msgspec.field(default=None, name="bname")


_LETTERS: Final = {
    "producer_group": "a",
    "topic": "b",
    "default_topic": "c",
    "default_topic_queue_nums": "d",
    "queue_id": "e",
    "sys_flag": "f",
    "born_timestamp": "g",
    "flag": "h",
    "properties": "i",
    "reconsume_times": "j",
    "unit_mode": "k",
    "max_reconsume_times": "l",
    "batch": "m",
    "broker_name": "n",
}


class SendRequestV2(SendRequest, frozen=True, kw_only=True, rename=_LETTERS):
    """The same under one-letter names; msgspec renames only what the class itself declares."""

    producer_group: str
    topic: str
    default_topic: str
    default_topic_queue_nums: Int32
    queue_id: Int32
    sys_flag: Int32
    born_timestamp: Int64
    flag: Int32
    properties: str | None = None
    reconsume_times: Int32 | None = None
    unit_mode: bool = False
    batch: bool = False
    max_reconsume_times: Int32 | None = None
    broker_name: str | None = None


class SendResponse(Header, frozen=True, kw_only=True):
    """Where the message went."""

    msg_id: str
    queue_id: Int32
    queue_offset: Int64
    transaction_id: str | None = None
    batch_uniq_id: str | None = None
    recall_handle: str | None = None
    region: str | None = msgspec.field(default=None, name="MSG_REGION")
    trace_on: bool | None = msgspec.field(default=None, name="TRACE_ON")


class SendBackRequest(Header, frozen=True, kw_only=True):
    """CONSUMER_SEND_MSG_BACK: deliver this message to the group again, later."""

    offset: Int64
    group: str
    delay_level: Int32
    origin_msg_id: str | None = None
    origin_topic: str | None = None
    unit_mode: bool = False
    max_reconsume_times: Int32 | None = None


class RecallRequest(Header, frozen=True, kw_only=True):
    """RECALL_MESSAGE: take back a delayed message before it is delivered."""

    producer_group: str | None = None
    topic: str
    recall_handle: str


class RecallResponse(Header, frozen=True, kw_only=True):
    """Which message was taken back."""

    msg_id: str


_LONG_NAMED: Final = frozenset({RequestCode.SEND_MESSAGE, RequestCode.SEND_REPLY_MESSAGE})


def decode_send(code: int, ext_fields: Mapping[str, str] | None) -> SendRequest:
    """Read the header of any send; the code says which names it uses."""
    return decode_header(SendRequest if code in _LONG_NAMED else SendRequestV2, ext_fields)
