"""How large a request may be, checked before its header or body is decoded.

A decoder written in C holds the interpreter for as long as it runs, in a thread as well, so the
only way to bound the time of a request is to bound its bytes. Sends and replies carry messages:
the store bounds those (`maxMessageSize`). Responses are answers to our own requests and are bounded
by the frame alone.

| request | body, bytes at most |
| --- | --- |
| sends, replies | frame (16 MiB); the store checks `maxMessageSize` |
| REGISTER_BROKER, lists of topics and groups | `registrationBytesMax` |
| UPDATE_BROKER_CONFIG, UPDATE_NAMESRV_CONFIG | 64 KiB; all of RocketMQ's 580 settings fit twice |
| all others | `requestBodyBytesMax` |

Any header may have `requestHeaderBytesMax` bytes. A JSON body of more than 32 KiB must be strict
JSON, because the lenient reader is slow; all known clients write strict JSON in requests.
"""

import re
import struct
from collections import Counter
from typing import Final

import msgspec

from downrange.protocol.command import ONE_WAY_FLAG, RESPONSE_FLAG, Command, Serialization, response
from downrange.protocol.command_codec import decode_command
from downrange.protocol.errors import RemoteProtocolError
from downrange.protocol.frame import Frame
from downrange.protocol.loose_json import LOOSE_BYTES_MAX
from downrange.protocol.request_codes import RequestCode
from downrange.protocol.response_codes import ResponseCode
from downrange.remoting.settings import ConnectionSettings

CHECKED_BODY_BYTES: Final = LOOSE_BYTES_MAX  # a smaller body is cheap, whatever is in it
_HEAD_BYTES: Final = 4 * 1024
_TAIL_BYTES: Final = 64 * 1024

_MESSAGES: Final = frozenset(
    (
        RequestCode.SEND_MESSAGE,
        RequestCode.SEND_MESSAGE_V2,
        RequestCode.SEND_BATCH_MESSAGE,
        RequestCode.SEND_REPLY_MESSAGE,
        RequestCode.SEND_REPLY_MESSAGE_V2,
        RequestCode.PUSH_REPLY_MESSAGE_TO_CLIENT,
    )
)
_LISTS: Final = frozenset(
    (
        RequestCode.REGISTER_BROKER,
        RequestCode.UPDATE_AND_CREATE_TOPIC_LIST,
        RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP_LIST,
    )
)
_PROPERTIES: Final = frozenset(
    (RequestCode.UPDATE_BROKER_CONFIG, RequestCode.UPDATE_NAMESRV_CONFIG)
)
_PROPERTIES_BYTES_MAX: Final = 64 * 1024
_JSON_BODIES: Final = frozenset(
    (
        *_LISTS,
        RequestCode.HEART_BEAT,
        RequestCode.CHECK_CLIENT_CONFIG,
        RequestCode.LOCK_BATCH_MQ,
        RequestCode.UNLOCK_BATCH_MQ,
        RequestCode.QUERY_ASSIGNMENT,
        RequestCode.QUERY_DATA_VERSION,
        RequestCode.REGISTER_TOPIC_IN_NAMESRV,
        RequestCode.SET_MESSAGE_REQUEST_MODE,
        RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP,
    )
)
_NUMBER: Final = {
    name: re.compile(rb'"%b"\s*:\s*"?(-?[0-9]{1,10})' % name)
    for name in (b"code", b"opaque", b"flag")
}
_FIXED: Final = struct.Struct(">hbhii")  # of a binary header: code, language, version, opaque, flag
_is_json: Final = msgspec.json.Decoder(msgspec.Raw).decode


class RequestTooLargeError(Exception):
    """A request beyond a limit; `answer` is what the peer gets, None if it waits for nothing."""

    def __init__(self, answer: Command | None) -> None:
        super().__init__(answer.remark if answer is not None else "")
        self.answer = answer


class RequestLimits:
    """Reads the commands of a server's connections. `refusals` counts what was refused."""

    def __init__(self, settings: ConnectionSettings, refusals: Counter[str]) -> None:
        self._header_bytes_max = settings.header_bytes_max
        self._body_bytes_max = settings.body_bytes_max
        self._registration_bytes_max = settings.registration_bytes_max
        self._refusals = refusals

    def decode(self, frame: Frame) -> Command:
        """The command of a frame; `RequestTooLargeError` if it is over a limit."""
        if len(frame.header) > self._header_bytes_max:
            raise self._header_too_large(frame)
        command = decode_command(frame)
        body = command.body
        if body is not None and len(body) > CHECKED_BODY_BYTES and not command.is_response:
            self._check_body(command, body)
        return command

    def _header_too_large(self, frame: Frame) -> RequestTooLargeError:
        request = _peek(frame)
        return self._refused(
            request,
            "header",
            f"header of {len(frame.header)} bytes; requestHeaderBytesMax is "
            f"{self._header_bytes_max}: shorten properties and expressions, or raise it",
        )

    def _check_body(self, command: Command, body: bytes) -> None:
        code = command.code
        if code in _MESSAGES:
            return
        limit, name = self._body_bytes_max, "requestBodyBytesMax"
        if code in _LISTS:
            limit, name = self._registration_bytes_max, "registrationBytesMax"
        elif code in _PROPERTIES:
            limit, name = _PROPERTIES_BYTES_MAX, "the limit for settings"
        if len(body) > limit:
            advice = "" if code in _PROPERTIES else ", or raise it"
            raise self._refused(
                command,
                "body",
                f"body of {len(body)} bytes; {name} is {limit}: split the request{advice}",
            )
        is_compressed = (command.ext_fields or {}).get("compressed") == "true"
        if code not in _JSON_BODIES or is_compressed:
            return
        try:
            _is_json(body)
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
            raise self._refused(
                command,
                "json",
                f"body of {len(body)} bytes is not strict JSON ({error}); the lenient reader takes "
                f"at most {CHECKED_BODY_BYTES} bytes: write strict JSON",
            ) from None

    def _refused(self, request: Command, reason: str, remark: str) -> RequestTooLargeError:
        self._refusals[reason] += 1
        if request.is_one_way:
            return RequestTooLargeError(None)
        text = f"request code {request.code}: {remark}"
        return RequestTooLargeError(response(request, ResponseCode.INVALID_PARAMETER, remark=text))


def _peek(frame: Frame) -> Command:
    """Code, opaque and flag of a request whose header is not going to be decoded."""
    header = frame.header
    if frame.encoding == Serialization.ROCKETMQ:
        code, _, _, opaque, flag = _FIXED.unpack_from(header)
    elif frame.encoding == Serialization.JSON:
        # Clients write these members before or behind the fields, which are the long part. Inside
        # a text quotes are escaped, so no text can look like one of them.
        ends = header[:_HEAD_BYTES] + b"\n" + header[-_TAIL_BYTES:]
        code, opaque, flag = (_peek_number(ends, name) for name in (b"code", b"opaque", b"flag"))
    else:
        raise RemoteProtocolError(f"unknown header encoding {frame.encoding}")
    if flag & RESPONSE_FLAG:
        raise RemoteProtocolError(f"response with a header of {len(header)} bytes")
    return Command(
        code=code,
        opaque=opaque,
        flag=flag & ONE_WAY_FLAG,
        serialization=Serialization(frame.encoding),
    )


def _peek_number(text: bytes, name: bytes) -> int:
    match = _NUMBER[name].search(text)
    if match is None:
        if name == b"flag":
            return 0
        raise RemoteProtocolError(f"oversized JSON header without {name.decode()!r} at its ends")
    return int(match.group(1))
