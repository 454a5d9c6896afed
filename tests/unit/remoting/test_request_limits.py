"""Requests over a limit are refused before they are decoded, and the connection stays usable."""

import asyncio
import time
from collections import Counter

import pytest

from downrange.protocol.command import Command, Serialization, request, response
from downrange.protocol.command_codec import encode_command
from downrange.protocol.errors import RemoteProtocolError
from downrange.protocol.frame import Frame, FrameDecoder
from downrange.protocol.request_codes import RequestCode
from downrange.protocol.response_codes import ResponseCode
from downrange.remoting.client import RemotingClient
from downrange.remoting.connection import Answer, Connection
from downrange.remoting.memory import MemoryNetwork
from downrange.remoting.request_limits import RequestLimits, RequestTooLargeError
from downrange.remoting.server import RemotingServer
from downrange.remoting.settings import KIB, MIB, ConnectionSettings
from downrange.runtime.service import Supervisor
from downrange.testing.virtual_time import run

INVALID = ResponseCode.INVALID_PARAMETER
SETTINGS = ConnectionSettings()
CPU_S_MAX = 0.05
ENCODINGS = pytest.mark.parametrize("encoding", list(Serialization))


def limits() -> tuple[RequestLimits, Counter[str]]:
    refusals: Counter[str] = Counter()
    return RequestLimits(SETTINGS, refusals), refusals


def frame_of(command: Command) -> Frame:
    decoder = FrameDecoder()
    decoder.feed(encode_command(command))
    frame = decoder.next_frame()
    assert frame is not None
    return frame


def refusal(frame: Frame) -> tuple[Command | None, Counter[str]]:
    reader, refusals = limits()
    with pytest.raises(RequestTooLargeError) as raised:
        reader.decode(frame)
    return raised.value.answer, refusals


@ENCODINGS
def test_a_header_over_the_limit_is_refused_with_its_number_and_not_decoded(
    encoding: Serialization,
) -> None:
    fields = {f"k{number}": "v" for number in range(700_000)}
    frame = frame_of(
        request(RequestCode.PULL_MESSAGE, opaque=77, ext_fields=fields, serialization=encoding)
    )
    assert len(frame.header) > 8 * MIB
    began_s = time.thread_time()
    answer, refusals = refusal(frame)
    assert time.thread_time() - began_s < CPU_S_MAX
    assert answer is not None
    assert (answer.code, answer.opaque, answer.serialization) == (INVALID, 77, encoding)
    assert answer.remark == (
        f"request code 11: header of {len(frame.header)} bytes; requestHeaderBytesMax is 262144: "
        "shorten properties and expressions, or raise it"
    )
    assert refusals == {"header": 1}


def test_the_number_is_found_before_or_behind_the_fields() -> None:
    fields = '"extFields":{' + ",".join(f'"k{n}":"\\"opaque\\":5"' for n in range(20_000)) + "}"
    behind = '{"code":34,' + fields + ',"flag":0,"language":"JAVA","opaque":9,"version":1}'
    before = '{"code":34,"language":"GO","version":1,"opaque":9,"flag":0,' + fields + "}"
    for header in (behind, before):
        answer, _ = refusal(Frame(Serialization.JSON, header.encode(), None))
        assert answer is not None
        assert answer.opaque == 9


def test_an_oversized_header_without_a_number_is_nonsense() -> None:
    reader, _ = limits()
    header = b'{"code":34,"extFields":{"k":"' + b"x" * MIB + b'"}}'
    with pytest.raises(RemoteProtocolError, match="without 'opaque' at its ends"):
        reader.decode(Frame(Serialization.JSON, header, None))


@ENCODINGS
def test_the_longest_properties_that_a_message_can_have_fit_into_a_header(
    encoding: Serialization,
) -> None:
    properties = "a\x01b\x02" * (32_767 // 4)
    worst = "\x02" * 32_767  # each is written as six characters in JSON
    for text in (properties, worst):
        command = request(
            RequestCode.SEND_MESSAGE_V2, opaque=1, ext_fields={"i": text}, serialization=encoding
        )
        decoded = limits()[0].decode(frame_of(command))
        assert decoded.ext_fields == {"i": text}


def test_one_way_requests_over_a_limit_are_dropped_and_counted() -> None:
    command = request(RequestCode.HEART_BEAT, opaque=1, body=bytes(2 * MIB), one_way=True)
    answer, refusals = refusal(frame_of(command))
    assert answer is None
    assert refusals == {"body": 1}


@pytest.mark.parametrize(
    ("code", "body_bytes", "name"),
    [
        (RequestCode.HEART_BEAT, MIB, "requestBodyBytesMax"),
        (RequestCode.LOCK_BATCH_MQ, MIB, "requestBodyBytesMax"),
        (RequestCode.REGISTER_BROKER, 4 * MIB, "registrationBytesMax"),
    ],
)
def test_a_body_has_a_limit_that_depends_on_the_code(
    code: RequestCode, body_bytes: int, name: str
) -> None:
    largest = b'"' + b"x" * (body_bytes - 2) + b'"'
    assert limits()[0].decode(frame_of(request(code, opaque=1, body=largest))).body == largest
    answer, _ = refusal(frame_of(request(code, opaque=1, body=largest + b" ")))
    assert answer is not None
    assert answer.remark == (
        f"request code {code.value}: body of {body_bytes + 1} bytes; {name} is {body_bytes}: "
        "split the request, or raise it"
    )


def test_settings_have_a_limit_of_their_own() -> None:
    body = b"#" * 64 * KIB
    command = request(RequestCode.UPDATE_NAMESRV_CONFIG, opaque=1, body=body)
    assert limits()[0].decode(frame_of(command)).body == body
    command = request(RequestCode.UPDATE_NAMESRV_CONFIG, opaque=1, body=body + b"#")
    answer, _ = refusal(frame_of(command))
    assert answer is not None
    assert answer.remark == (
        "request code 318: body of 65537 bytes; the limit for settings is 65536: split the request"
    )


def test_messages_and_responses_are_bounded_by_the_frame_alone() -> None:
    body = bytes(15 * MIB)
    for command in (
        request(RequestCode.SEND_MESSAGE_V2, opaque=1, body=body),
        response(request(RequestCode.GET_CONSUMER_RUNNING_INFO, opaque=1), 0, body=body),
    ):
        assert limits()[0].decode(frame_of(command)).body == body


@pytest.mark.parametrize("text", [b"[" * MIB, b"{" + b'"a":1,' * 160_000, b"{a:1}" + b" " * MIB])
def test_a_large_body_that_is_not_strict_json_is_refused_quickly(text: bytes) -> None:
    frame = frame_of(request(RequestCode.HEART_BEAT, opaque=1, body=text[:MIB]))
    began_s = time.thread_time()
    answer, refusals = refusal(frame)
    assert time.thread_time() - began_s < CPU_S_MAX
    assert answer is not None
    assert "is not strict JSON" in (answer.remark or "")
    assert refusals == {"json": 1}


def test_a_compressed_registration_is_not_taken_for_json() -> None:
    body = bytes(100 * KIB)
    command = request(
        RequestCode.REGISTER_BROKER, opaque=1, ext_fields={"compressed": "true"}, body=body
    )
    assert limits()[0].decode(frame_of(command)).body == body


def test_the_connection_stays_usable_after_a_refusal() -> None:
    async def main() -> None:
        def echo(command: Command, _: Connection) -> Answer:
            return response(command, 0, body=command.body)

        def fail(name: str, error: BaseException) -> None:
            raise AssertionError(name) from error

        network = MemoryNetwork()
        server = RemotingServer(network, Supervisor(fail), {RequestCode.HEART_BEAT: echo})
        await server.listen("127.0.0.1", 10911)
        connection = await RemotingClient(network).connect("127.0.0.1:10911")
        codes = await asyncio.gather(
            connection.call(RequestCode.HEART_BEAT, body=b"{}", timeout_s=9),
            connection.call(RequestCode.HEART_BEAT, body=bytes(2 * MIB), timeout_s=9),
            connection.call(RequestCode.HEART_BEAT, {"a": "x" * MIB}, timeout_s=9),
            connection.call(RequestCode.HEART_BEAT, body=b"{}", timeout_s=9),
        )
        assert [answer.code for answer in codes] == [0, INVALID, INVALID, 0]
        assert server.intake.refusals == {"body": 1, "header": 1}

    run(main())
