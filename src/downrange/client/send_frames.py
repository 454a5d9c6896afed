"""The header of a send as bytes: what is the same for all messages to a queue is written once.

The fields are those of `SendRequestV2`, in the order of their letters.
"""

from typing import Final, NamedTuple

import msgspec

from downrange.client.outgoing import Outgoing
from downrange.model.topics import MessageQueue
from downrange.protocol.command import ONE_WAY_FLAG
from downrange.protocol.headers.send import SendRequestV2
from downrange.protocol.languages import LanguageCode
from downrange.protocol.request_codes import RequestCode
from downrange.protocol.versions import CURRENT_VERSION

_json: Final = msgspec.json.Encoder().encode
_FRAMES_KEPT_MAX: Final = 20_000
_NO_RETRIES: Final = b'"j":"0",'
_AFTER_OPAQUE: Final = b',"serializeTypeCurrentRPC":"JSON","version":%d}' % CURRENT_VERSION
_FIELDS: Final = b'%b"f":"%d","g":"%d","h":"%d","i":%b,%b%b%d' + _AFTER_OPAQUE


class QueueParts(NamedTuple):
    """What is the same in all headers of one request code to one queue."""

    before: bytes
    after: bytes
    after_one_way: bytes


class SendFrames:
    """Writes headers for one producer."""

    def __init__(
        self, group: str, template_topic: str, template_queue_nums: int, *, unit_mode: bool
    ) -> None:
        self._group = group
        self._template_topic = template_topic
        self._template_queue_nums = template_queue_nums
        self._unit_mode = unit_mode
        self._parts: dict[tuple[MessageQueue, str, int], QueueParts] = {}

    def parts(self, queue: MessageQueue, broker: str, code: int) -> QueueParts:
        """What does not change from message to message."""
        key = (queue, broker, code)
        return self._parts.get(key) or self._learn(key)

    def header(
        self, outgoing: Outgoing, queue: MessageQueue, broker: str, born_ms: int
    ) -> SendRequestV2:
        """The same as a value, for those who sign or look at the fields."""
        return SendRequestV2(
            producer_group=self._group,
            topic=outgoing.topic,
            default_topic=self._template_topic,
            default_topic_queue_nums=self._template_queue_nums,
            queue_id=queue.queue_id,
            sys_flag=outgoing.sys_flag,
            born_timestamp=born_ms,
            flag=outgoing.message.flag,
            properties=outgoing.properties,
            reconsume_times=outgoing.reconsume_times,
            unit_mode=self._unit_mode,
            batch=outgoing.is_batch,
            max_reconsume_times=outgoing.max_reconsume_times,
            broker_name=broker,
        )

    def _learn(self, key: tuple[MessageQueue, str, int]) -> QueueParts:
        queue, broker, code = key
        is_batch = code == RequestCode.SEND_BATCH_MESSAGE
        if len(self._parts) >= _FRAMES_KEPT_MAX:
            self._parts.clear()
        before = b'{"code":%d,"extFields":{"a":%b,"b":%b,"c":%b,"d":"%d","e":"%d",' % (
            code,
            _json(self._group),
            _json(queue.topic),
            _json(self._template_topic),
            self._template_queue_nums,
            queue.queue_id,
        )
        fields_end = b'"k":"%b","m":"%b","n":%b}' % (
            _switch(self._unit_mode),
            _switch(is_batch),
            _json(broker),
        )
        after = b'%b,"flag":%d,"language":"%b","opaque":'
        language = LanguageCode.PYTHON.name.encode()
        parts = QueueParts(
            before,
            after % (fields_end, 0, language),
            after % (fields_end, ONE_WAY_FLAG, language),
        )
        self._parts[key] = parts
        return parts


def write_header(
    parts: QueueParts, outgoing: Outgoing, born_ms: int, opaque: int, *, one_way: bool = False
) -> bytes:
    """The whole header of a request with this number."""
    retries = _NO_RETRIES
    if outgoing.reconsume_times or outgoing.max_reconsume_times is not None:
        retries = _retries(outgoing)
    return _FIELDS % (
        parts.before,
        outgoing.sys_flag,
        born_ms,
        outgoing.message.flag,
        outgoing.properties_json,
        retries,
        parts.after_one_way if one_way else parts.after,
        opaque,
    )


def _switch(value: bool) -> bytes:
    return b"true" if value else b"false"


def _retries(outgoing: Outgoing) -> bytes:
    times = b'"j":"%d",' % outgoing.reconsume_times
    if outgoing.max_reconsume_times is not None:
        times += b'"l":"%d",' % outgoing.max_reconsume_times
    return times
