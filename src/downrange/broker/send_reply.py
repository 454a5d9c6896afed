"""The answer to a send, written without a detour: it goes out once for every message."""

from struct import Struct

from downrange.broker.message_writer import put_code
from downrange.protocol.command import Command, Serialization, response
from downrange.protocol.command_codec import encode_command
from downrange.protocol.message_id import encode_message_id
from downrange.protocol.versions import CURRENT_VERSION
from downrange.store.appender import Appended
from downrange.store.errors import PutStatus

_FRAME_START = Struct(">iI")


class SendReply:
    """Knows what is the same in every answer of this broker."""

    def __init__(self, store_host: bytes, region: str, *, traces: bool) -> None:
        self._store_host = store_host
        self._host_hex = store_host.hex().upper().encode()
        self._constant_fields = {"MSG_REGION": region, "TRACE_ON": "true" if traces else "false"}
        trace = b"true" if traces else b"false"
        self._json = (
            b'{"code":0,"extFields":{"MSG_REGION":"'
            + region.encode().replace(b"%", b"%%")
            + b'","TRACE_ON":"'
            + trace
            + b'","msgId":"%b%016X","queueId":"%d","queueOffset":"%d","transactionId":"%b"},'
            b'"flag":1,"language":"PYTHON","opaque":%d,"serializeTypeCurrentRPC":"JSON","version":'
            + str(CURRENT_VERSION).encode()
            + b"}"
        )

    def now(
        self,
        request: Command,
        status: PutStatus,
        appended: Appended,
        queue_id: int,
        unique_key: bytes,
    ) -> bytes:
        """The frame for one message that was stored."""
        if request.serialization is Serialization.JSON and unique_key.isalnum():
            header = self._json % (
                self._host_hex,
                appended[0],
                queue_id,
                appended[2],
                unique_key,
                request.opaque,
            )
            return _FRAME_START.pack(len(header) + 4, len(header)) + header
        return self.later(request, status, [appended], queue_id, unique_key)

    def later(
        self,
        request: Command,
        status: PutStatus,
        placed: list[Appended],
        queue_id: int,
        unique_key: bytes | None,
    ) -> bytes:
        """The frame for messages whose status is known; a batch has one id for each."""
        ids = (encode_message_id(self._store_host, one.physical_offset) for one in placed)
        fields = {
            "msgId": ",".join(ids),
            "queueId": str(queue_id),
            "queueOffset": str(placed[0].queue_offset),
            **self._constant_fields,
        }
        if unique_key is not None:
            fields["transactionId"] = unique_key.decode("utf-8", "replace")
        remark = None
        code = put_code(status)
        if status is PutStatus.NOT_WRITABLE or status is PutStatus.SHUT_DOWN:
            remark = f"service not available now: {status.detail}"
        return encode_command(response(request, code, remark=remark, ext_fields=fields))
