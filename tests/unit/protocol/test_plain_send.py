"""What is read in one step is what the long way reads; anything unusual is left to the long way."""

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from downrange.protocol.binary_header import encode_binary_header
from downrange.protocol.command import Command, Serialization
from downrange.protocol.command_codec import decode_command
from downrange.protocol.frame import Frame
from downrange.protocol.headers.fields import encode_header
from downrange.protocol.headers.send import SendRequestV2, decode_send
from downrange.protocol.json_header import encode_json_header
from downrange.protocol.plain_send import PlainSendReader
from downrange.protocol.request_codes import RequestCode

TEXT = "UNIQ_KEY\x017F0000010001\x02WAIT\x01true\x02"
BORN_MS = 1_700_000_000_000
SEND_CODES = (RequestCode.SEND_MESSAGE_V2, RequestCode.SEND_BATCH_MESSAGE)
INT32 = st.integers(-(1 << 31), (1 << 31) - 1)


def header_of(**changes: object) -> SendRequestV2:
    values: dict[str, object] = {
        "producer_group": "producers",
        "topic": "orders",
        "default_topic": "TBW102",
        "default_topic_queue_nums": 4,
        "queue_id": 3,
        "sys_flag": 1,
        "born_timestamp": BORN_MS,
        "flag": 5,
        "properties": TEXT,
        "reconsume_times": 2,
        **changes,
    }
    return SendRequestV2(**values)  # type: ignore[arg-type]


def encoded(
    fields: dict[str, str],
    encoding: Serialization,
    code: int = RequestCode.SEND_MESSAGE_V2,
    flag: int = 0,
    remark: str | None = None,
) -> bytes:
    command = Command(
        code=code,
        opaque=77,
        flag=flag,
        ext_fields=fields,
        remark=remark,
        serialization=encoding,
    )
    is_json = encoding is Serialization.JSON
    return encode_json_header(command) if is_json else encode_binary_header(command)


@pytest.mark.parametrize("encoding", list(Serialization))
@pytest.mark.parametrize("code", SEND_CODES)
def test_a_usual_send_is_read(encoding: Serialization, code: RequestCode) -> None:
    reader = PlainSendReader()
    is_batch = code is RequestCode.SEND_BATCH_MESSAGE
    header = encoded(encode_header(header_of(batch=is_batch)), encoding, code)
    expected = (77, "orders", 3, 1, BORN_MS, 5, 2, TEXT.encode(), is_batch)
    assert reader.read(encoding, header) == expected
    assert reader.read(encoding, header) == expected  # and from memory


@given(
    encoding=st.sampled_from(Serialization),
    code=st.sampled_from(SEND_CODES),
    topic=st.text(st.characters(codec="utf-8"), min_size=1),
    queue_id=INT32,
    sys_flag=INT32,
    flag=INT32,
    times=st.none() | INT32,
    born_timestamp=st.integers(0, (1 << 63) - 1) | st.integers(10**12, 10**13 - 1),
    properties=st.text(st.characters(codec="utf-8")),
    batch=st.booleans(),
    one_way=st.booleans(),
)
def test_what_is_read_is_what_the_long_way_reads(
    encoding: Serialization,
    code: RequestCode,
    topic: str,
    queue_id: int,
    sys_flag: int,
    flag: int,
    times: int | None,
    born_timestamp: int,
    properties: str,
    batch: bool,
    one_way: bool,
) -> None:
    header = header_of(
        topic=topic,
        queue_id=queue_id,
        sys_flag=sys_flag,
        flag=flag,
        reconsume_times=times,
        born_timestamp=born_timestamp,
        properties=properties,
        batch=batch,
    )
    data = encoded(encode_header(header), encoding, code, flag=2 if one_way else 0)
    found = PlainSendReader().read(encoding, data)
    if batch is not (code is RequestCode.SEND_BATCH_MESSAGE) or one_way:
        assert found is None
    if found is None:
        return
    command = decode_command(Frame(encoding, data, b"body"))
    read = decode_send(command.code, command.ext_fields)
    assert found == (
        command.opaque,
        read.topic,
        read.queue_id,
        read.sys_flag,
        read.born_timestamp,
        read.flag,
        read.reconsume_times or 0,
        (read.properties or "").encode(),
        read.batch,
    )


FIELDS = encode_header(header_of())


@pytest.mark.parametrize("encoding", list(Serialization))
@pytest.mark.parametrize(
    "fields",
    [
        {name: value for name, value in FIELDS.items() if name != "b"},
        {name: value for name, value in FIELDS.items() if name != "g"},
        {name: value for name, value in FIELDS.items() if name != "i"},
        {**FIELDS, "d": "many"},
        {**FIELDS, "d": "\0"},
        {**FIELDS, "l": "many"},
        {**FIELDS, "e": "many"},
        {**FIELDS, "e": "1_0"},
        {**FIELDS, "g": "17000000000_0"},
        {**FIELDS, "e": "3000000000"},
        {**FIELDS, "g": "yesterday"},
        {**FIELDS, "m": "true"},
        {**FIELDS, "d": "some"},
        {**FIELDS, "l": "false"},
        {},
    ],
)
def test_an_unusual_send_is_left_to_the_long_way(
    encoding: Serialization, fields: dict[str, str]
) -> None:
    assert PlainSendReader().read(encoding, encoded(fields, encoding)) is None


@pytest.mark.parametrize("encoding", list(Serialization))
def test_other_requests_answers_and_one_way_sends_are_left(encoding: Serialization) -> None:
    reader = PlainSendReader()
    assert reader.read(encoding, encoded(FIELDS, encoding, code=RequestCode.PULL_MESSAGE)) is None
    assert reader.read(encoding, encoded(FIELDS, encoding, flag=1)) is None
    assert reader.read(encoding, encoded(FIELDS, encoding, flag=2)) is None
    assert reader.read(7, encoded(FIELDS, encoding)) is None


def test_binary_fields_in_another_order_or_with_more_of_them_are_left() -> None:
    reader = PlainSendReader()
    binary = Serialization.ROCKETMQ
    backwards = dict(reversed(FIELDS.items()))
    assert reader.read(binary, encoded(backwards, binary)) is None
    assert reader.read(binary, encoded({**FIELDS, "ns": "x"}, binary)) is None
    assert reader.read(binary, encoded(FIELDS, binary, remark="a remark")) is None


@given(st.integers(0, 400), st.integers(0, 255))
@example(164, 108)
def test_a_damaged_binary_header_reads_as_the_long_way_reads_it_or_not_at_all(
    position: int, value: int
) -> None:
    data = bytearray(encoded(FIELDS, Serialization.ROCKETMQ))
    data[position % len(data)] = value
    found = PlainSendReader().read(Serialization.ROCKETMQ, bytes(data))
    if found is not None:
        command = decode_command(Frame(Serialization.ROCKETMQ, bytes(data), b""))
        read = decode_send(command.code, command.ext_fields)
        assert found[1:3] == (read.topic, read.queue_id)
        assert found[7] == (read.properties or "").encode()


def test_memory_of_what_producers_repeat_is_bounded() -> None:
    reader = PlainSendReader()
    for number in range(10_000):
        fields = {**FIELDS, "b": f"topic-{number}"}
        found = reader.read(Serialization.ROCKETMQ, encoded(fields, Serialization.ROCKETMQ))
        assert found is not None
        assert found[1] == f"topic-{number}"
    assert len(reader._before) <= 4096
