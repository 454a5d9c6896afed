"""Commands in both header encodings, against bytes written by Apache RocketMQ 5.5.0."""

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from downrange.protocol.command import Command, Serialization, request, response
from downrange.protocol.command_codec import decode_command, encode_command, encode_command_start
from downrange.protocol.errors import LocalProtocolError, RemoteProtocolError
from downrange.protocol.frame import Frame, FrameDecoder
from downrange.protocol.languages import LanguageCode
from downrange.protocol.request_codes import RequestCode
from downrange.protocol.response_codes import ResponseCode

JSON, BINARY = Serialization.JSON, Serialization.ROCKETMQ
SEND_FIELDS = {
    "a": "PG",
    "b": "T",
    "c": "TBW102",
    "d": "4",
    "e": "2",
    "f": "0",
    "g": "1731700000000",
    "h": "0",
    "i": "KEYS\x01k\x02TAGS\x01中",
    "j": "0",
    "k": "false",
    "l": "16",
    "m": "true",
    "bname": "b",
}
POP_FIELDS = {
    "pollTime": "0",
    "invisibleTime": "0",
    "queueId": "0",
    "bornTime": "0",
    "maxMsgNums": "0",
    "topic": "T",
    "consumerGroup": "g",
    "initMode": "0",
    "order": "false",
}
ESCAPED = '\x0b\x1f\x7f\u2028é😀/\\"\b\f\n\r\t\x00'


def java(code: int, **members: object) -> Command:
    plain = Command(code=code, language=LanguageCode.JAVA, version=513)
    return msgspec.structs.replace(plain, **members)


# The same six commands as Java writes them; ext fields stand in the order of Java's HashMap.
JAVA_COMMANDS = {
    "send": java(310, opaque=7, ext_fields=SEND_FIELDS, body=b"hi"),
    "response": java(
        0, opaque=7, flag=1, ext_fields={"queueId": "2", "msgId": "M", "queueOffset": "9"}
    ),
    "error": java(3, opaque=-8, flag=1, remark=" request type 9 not supported"),
    "pop": java(200050, opaque=8, flag=2, ext_fields=POP_FIELDS),
    "escapes": java(105, opaque=1, ext_fields={"k": ESCAPED}),
}
JAVA_JSON = {
    "send": b"\0\0\x01\x20\0\0\x01\x1a"
    b'{"code":310,"extFields":{"a":"PG","b":"T","c":"TBW102","d":"4","e":"2","f":"0",'
    b'"g":"1731700000000","h":"0","i":"KEYS\\u0001k\\u0002TAGS\\u0001\xe4\xb8\xad","j":"0",'
    b'"k":"false","l":"16","m":"true","bname":"b"},"flag":0,"language":"JAVA","opaque":7,'
    b'"serializeTypeCurrentRPC":"JSON","version":513}hi',
    "response": b'\0\0\0\x9d\0\0\0\x99{"code":0,"extFields":{"queueId":"2","msgId":"M",'
    b'"queueOffset":"9"},"flag":1,"language":"JAVA","opaque":7,'
    b'"serializeTypeCurrentRPC":"JSON","version":513}',
    "error": b'\0\0\0\x8d\0\0\0\x89{"code":3,"flag":1,"language":"JAVA","opaque":-8,"remark":'
    b'" request type 9 not supported","serializeTypeCurrentRPC":"JSON","version":513}',
    "pop": b'\0\0\x01\x06\0\0\x01\x02{"code":200050,"extFields":{"pollTime":"0",'
    b'"invisibleTime":"0","queueId":"0","bornTime":"0","maxMsgNums":"0","topic":"T",'
    b'"consumerGroup":"g","initMode":"0","order":"false"},"flag":2,"language":"JAVA","opaque":8,'
    b'"serializeTypeCurrentRPC":"JSON","version":513}',
    "escapes": b'\0\0\0\xa5\0\0\0\xa1{"code":105,"extFields":{"k":"\\u000b\\u001f\x7f\xe2\x80\xa8'
    b'\xc3\xa9\xf0\x9f\x98\x80/\\\\\\"\\b\\f\\n\\r\\t\\u0000"},"flag":0,"language":"JAVA",'
    b'"opaque":1,"serializeTypeCurrentRPC":"JSON","version":513}',
}
JAVA_BINARY = {
    "send": "000000b7010000b101360002010000000700000000000000000000009c000161000000025047000162"
    "0000000154000163000000065442573130320001640000000134000165000000013200016600000001300001670"
    "000000d3137333137303030303030303000016800000001300001690000000f4b455953016b025441475301e4b8"
    "ad00016a000000013000016b0000000566616c736500016c00000002313600016d00000004747275650005626e6"
    "16d6500000001626869",
    "response": "000000450100004100000002010000000700000001000000000000002c00077175657565496400"
    "0000013200056d73674964000000014d000b71756575654f66667365740000000139",
    "error": "00000036010000320003000201fffffff8000000010000001d20726571756573742074797065203920"
    "6e6f7420737570706f7274656400000000",
    "pop": "000000a9010000a50d72000201000000080000000200000000000000900008706f6c6c54696d650000000"
    "130000d696e76697369626c6554696d65000000013000077175657565496400000001300008626f726e54696d65"
    "0000000130000a6d61784d73674e756d7300000001300005746f7069630000000154000d636f6e73756d6572477"
    "26f757000000001670008696e69744d6f6465000000013000056f726465720000000566616c7365",
    "escapes": "000000350100003100690002010000000100000000000000000000001c00016b000000150b1f7fe2"
    "80a8c3a9f09f98802f5c22080c0a0d0900",
}
GOLDEN = [(JAVA_COMMANDS[name], data) for name, data in JAVA_JSON.items()]
GOLDEN += [
    (msgspec.structs.replace(JAVA_COMMANDS[name], serialization=BINARY), bytes.fromhex(data))
    for name, data in JAVA_BINARY.items()
]


def decoded(data: bytes) -> Command:
    decoder = FrameDecoder()
    decoder.feed(data)
    frame = decoder.next_frame()
    assert frame is not None
    assert decoder.next_frame() is None
    return decode_command(frame)


def read_json_header(text: bytes) -> Command:
    return decode_command(Frame(JSON, text, None))


@pytest.mark.parametrize(("command", "data"), GOLDEN)
def test_java_bytes_read_as_the_command_and_the_command_writes_as_java_bytes(
    command: Command, data: bytes
) -> None:
    assert decoded(data) == command
    assert encode_command(command) == data


def test_a_json_header_keeps_empty_fields_and_an_empty_remark_apart_from_none() -> None:
    data = (
        b'\0\0\0\x7e\0\0\0\x7a{"code":0,"extFields":{},"flag":1,"language":"JAVA","opaque":1,'
        b'"remark":"","serializeTypeCurrentRPC":"JSON","version":513}'
    )
    command = java(0, opaque=1, flag=1, ext_fields={}, remark="")
    assert decoded(data) == command
    assert encode_command(command) == data


def test_a_binary_header_has_no_empty_text() -> None:
    command = java(0, opaque=1, flag=1, ext_fields={}, remark="", serialization=BINARY)
    data = encode_command(command)
    assert data.hex() == "0000001901000015000000020100000001000000010000000000000000"
    assert decoded(data) == msgspec.structs.replace(command, ext_fields=None, remark=None)


def test_a_binary_field_without_key_or_value_is_no_field() -> None:
    # Java gives {null=z, x=null} for these bytes: whoever asks for x finds nothing.
    data = bytes.fromhex(
        "000000290100002301360001df0000000700000000000000000000000e0000000000017a000178000000006869"
    )
    assert decoded(data).ext_fields == {}


@pytest.mark.parametrize("code", [code for code in RequestCode if code > 0x7FFF])
def test_a_code_over_16_bits_survives_the_binary_header_of_a_request(code: RequestCode) -> None:
    command = request(code, opaque=1, serialization=BINARY)
    data = encode_command(command)
    assert data[8:10] == (code & 0xFFFF).to_bytes(2, "big"), "cut as Java cuts it"
    assert decoded(data).code == code


def test_known_cut_codes_are_those_seen_on_the_wire() -> None:
    cut = {200050: 3442, 200051: 3443, 200052: 3444, 200053: 3445, 200054: 3446, 200151: 3543}
    for code, seen in cut.items():
        assert encode_command(request(code, opaque=1, serialization=BINARY))[8:10] == (
            seen.to_bytes(2, "big")
        )


def test_a_response_code_is_never_taken_for_a_cut_request_code() -> None:
    answered = response(request(1, opaque=1, serialization=BINARY), 3442)
    assert decoded(encode_command(answered)).code == 3442


def test_negative_codes_survive_both_headers() -> None:
    for serialization in Serialization:
        asked = request(34, opaque=1, serialization=serialization)
        answered = response(asked, ResponseCode.RPC_TIME_OUT)
        assert decoded(encode_command(answered)).code == -1006


def test_a_response_answers_in_kind() -> None:
    asked = request(34, opaque=99, serialization=BINARY)
    answered = response(asked, ResponseCode.SUCCESS, remark="ok", body=b"b")
    assert (answered.opaque, answered.serialization) == (99, BINARY)
    assert answered.is_response
    assert not answered.is_one_way
    assert not asked.is_response


def test_a_one_way_request_says_so() -> None:
    assert request(15, opaque=1, one_way=True).is_one_way


def test_a_frame_can_be_started_without_its_body() -> None:
    command = java(0, body=b"12345")
    start = encode_command_start(msgspec.structs.replace(command, body=None), 5)
    assert start + b"12345" == encode_command(command)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (b"{}", java(0, version=0)),
        (b'{"code":"12","opaque":"5","flag":null,"extra":{"a":[1]},"remark":null}',
         java(12, version=0, opaque=5)),
        (b'{"code":12.7,"version":true,"language":3}',
         java(12, version=1, language=LanguageCode.PYTHON)),
        (b'{"code":"","extFields":"","remark":5}', java(0, version=0, remark="5")),
        (b'{"code":1,}', java(1, version=0)),
        (b"{code:12,'language':'JAVA',extFields:{'a':1,b:true,c:null,e:1.5}}",
         java(12, version=0, ext_fields={"a": "1", "b": "true", "e": "1.5"})),
        (b'{"language":"RUST2"}', java(0, version=0, language=LanguageCode.OTHER)),
        (b'{"language":null}', java(0, version=0, language=LanguageCode.OTHER)),
        (b'{"remark":"\xff"}', java(0, version=0, remark="\ufffd")),
        (b'{"remark":"\\ud83d\\ude00 \\ud800"}', java(0, version=0, remark="😀 \ufffd")),
        (b'{"code":1,"code":2}', java(2, version=0)),
    ],
)  # fmt: skip
def test_json_headers_are_read_as_leniently_as_java_reads_them(
    text: bytes, expected: Command
) -> None:
    assert read_json_header(text) == expected


@pytest.mark.parametrize(
    "text",
    [
        *(b"", b"[]", b"null", b"x", b'{"code":1} x', b'{"flag":2147483648}', b'{"code":"x"}'),
        *(b'{"code":[1]}', b'{"extFields":[1]}', b'{"extFields":{"a":{}}}', b'{"code":1e999}'),
        *(b'{"x":' + b"[" * 10_000, b"{" * 10_000, b'{"code":' + b"1" * 10_000 + b"}"),
    ],
)
def test_a_json_header_that_is_none_is_the_peers_fault(text: bytes) -> None:
    with pytest.raises(RemoteProtocolError):
        read_json_header(text)


def test_every_cut_of_a_binary_header_is_the_peers_fault() -> None:
    header = bytes.fromhex(JAVA_BINARY["send"])[8:-2]
    for length in range(len(header)):
        with pytest.raises(RemoteProtocolError):
            decode_command(Frame(BINARY, header[:length], None))


@pytest.mark.parametrize("position", [13, 17, 23])
def test_lengths_that_lie_are_the_peers_fault(position: int) -> None:
    header = bytearray(bytes.fromhex(JAVA_BINARY["send"])[8:-2])
    for lie in (b"\xff\xff\xff\xff", b"\x7f\xff\xff\xff", b"\x00\x00\xff\xff"):
        header[position : position + 4] = lie
        with pytest.raises(RemoteProtocolError):
            decode_command(Frame(BINARY, bytes(header), None))


def test_broken_utf8_in_a_binary_field_is_replaced_as_in_java() -> None:
    header = bytes.fromhex("000a0000000000000700000000000000000000000900016100000002ff41")
    assert decode_command(Frame(BINARY, header, None)).ext_fields == {"a": "\ufffdA"}


def test_an_unknown_language_number_is_other() -> None:
    header = bytes.fromhex("000a7f000000000007000000000000000000000000")
    assert decode_command(Frame(BINARY, header, None)).language is LanguageCode.OTHER


def test_an_unknown_header_encoding_is_the_peers_fault() -> None:
    with pytest.raises(RemoteProtocolError, match="unknown header encoding 2"):
        decode_command(Frame(2, b"{}", None))


@pytest.mark.parametrize(
    "command",
    [
        Command(code=1, remark="\ud800"),
        Command(code=1, remark="\ud800", serialization=BINARY),
        Command(code=1, ext_fields={"\ud800": "x"}, serialization=BINARY),
        Command(code=1, ext_fields={"k" * 40_000: "x"}, serialization=BINARY),
        Command(code=1, opaque=1 << 31, serialization=BINARY),
    ],
)
def test_what_has_no_header_is_our_own_fault(command: Command) -> None:
    with pytest.raises(LocalProtocolError):
        encode_command(command)


TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=30)
INT32 = st.integers(-(2**31), 2**31 - 1)


@given(
    code=st.integers(-0x8000, 0x7FFF),
    language=st.sampled_from(LanguageCode),
    version=st.integers(-0x8000, 0x7FFF),
    opaque=INT32,
    flag=INT32,
    remark=st.none() | TEXT.filter(bool),
    ext_fields=st.none() | st.dictionaries(TEXT.filter(bool), TEXT.filter(bool), min_size=1),
    body=st.none() | st.binary(min_size=1, max_size=50),
    serialization=st.sampled_from(Serialization),
)
def test_any_command_survives_both_headers(
    code: int,
    language: LanguageCode,
    version: int,
    opaque: int,
    flag: int,
    remark: str | None,
    ext_fields: dict[str, str] | None,
    body: bytes | None,
    serialization: Serialization,
) -> None:
    if not 3392 < code < 3600:  # these would be taken for cut codes
        command = Command(
            code=code,
            language=language,
            version=version,
            opaque=opaque,
            flag=flag,
            remark=remark,
            ext_fields=ext_fields,
            body=body,
            serialization=serialization,
        )
        assert decoded(encode_command(command)) == command
