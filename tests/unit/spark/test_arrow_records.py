"""Records to Arrow, compared with the client's own reader, which reads record by record."""

import random
from datetime import UTC, datetime, timedelta

import numpy as np
import pyarrow as pa
import pytest
from pyspark.sql.pandas.types import to_arrow_schema

from downrange.client.message import ReceivedMessage
from downrange.client.record_reader import read_response
from downrange.protocol.batch import encode_batch
from downrange.protocol.compression import compress
from downrange.protocol.errors import RemoteProtocolError
from downrange.protocol.hosts import decode_host, encode_host, format_address
from downrange.protocol.record import MAGIC_V1, MAGIC_V2, Record, encode_record
from downrange.protocol.sys_flag import (
    BORN_HOST_V6,
    INNER_BATCH,
    NEED_UNWRAP,
    STORE_HOST_V6,
    CompressionType,
    with_compression,
)
from downrange.spark.arrow_records import SINK_ID_PROPERTY, RecordDecoder
from downrange.spark.columns import ALL_COLUMNS, KNOWN_COLUMNS, arrow_schema, spark_schema
from downrange.spark.record_heads import record_starts

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
PROPERTY_TEXTS = (
    b"",
    b"KEYS\x01k1\x02TAGS\x01red\x02",
    b"KEYS\x01k1 k2\x02TAGS\x01blue",  # Java writes no separator at the end
    b"TAGS\x01a\x02TAGS\x01b\x02UNIQ_KEY\x017F00\x02",  # the last one wins
    b"MYTAGS\x01no\x02XKEYS\x01no\x02TAG\x01no\x02",
    b"a\x01KEYS\x01inside\x02KEYS\x01outside\x02",
    b"TAGS\x01\x02KEYS\x02\x01nameless\x02\x02\x02b\x01c",
    "KEYS\x01schlüssel\x02TAGS\x01grün\x02名\x01値".encode(),
    b"KEYS\x01\xed\xa0\x80broken\xff\x02TAGS\x01ok\x02",
    b"\x02\x02TAGS\x01late",
    SINK_ID_PROPERTY.encode() + b"\x01q:1:2:3\x02",
)


def a_record(chance: random.Random, offset: int, *, v6: bool = True, packed: bool = True) -> bytes:
    sys_flag = 0
    hosts = [encode_host("10.1.2.3", 5000), encode_host("127.0.0.1", 10911)]
    if v6 and chance.random() < 0.4:
        sys_flag |= BORN_HOST_V6
        hosts[0] = encode_host("2001:db8::1", 5000 + chance.randrange(3))
    if v6 and chance.random() < 0.4:
        sys_flag |= STORE_HOST_V6
        hosts[1] = encode_host("2001:db8::2", 10911)
    body = chance.randbytes(chance.randrange(200))
    if packed and chance.random() < 0.3 and body:
        kind = chance.choice(list(CompressionType))
        sys_flag = with_compression(sys_flag, kind)
        body = compress(body, kind)
    topic = chance.choice(["orders", "größe", "%RETRY%g", "t" * 200]).encode()
    magic = MAGIC_V2 if len(topic) > 127 or chance.random() < 0.2 else MAGIC_V1
    return encode_record(
        Record(
            queue_id=chance.randrange(8),
            flag=0,
            queue_offset=offset,
            physical_offset=chance.randrange(1 << 40),
            sys_flag=sys_flag,
            born_timestamp=1_700_000_000_000 + chance.randrange(1 << 30),
            born_host=hosts[0],
            store_timestamp=1_700_000_000_000 + chance.randrange(1 << 30),
            store_host=hosts[1],
            reconsume_times=chance.randrange(3),
            prepared_offset=0,
            body=body,
            topic=topic,
            properties=chance.choice(PROPERTY_TEXTS),
            magic=magic,
        )
    )


def time_of(millis: int) -> datetime:
    return EPOCH + timedelta(milliseconds=millis)


def row_of(message: ReceivedMessage) -> dict[str, object]:
    properties = message.properties
    return {
        "topic": message.topic,
        "brokerName": message.broker_name,
        "queueId": message.queue_id,
        "queueOffset": message.queue_offset,
        "keys": properties.get("KEYS"),
        "tags": properties.get("TAGS"),
        "body": message.body,
        "bornTimestamp": time_of(message.born_timestamp_ms),
        "storeTimestamp": time_of(message.store_timestamp_ms),
        "msgId": message.offset_message_id,
        "uniqueKey": properties.get("UNIQ_KEY"),
        "reconsumeTimes": message.reconsume_times,
        "bornHost": format_address(*decode_host(message.born_host_bytes)),
        "sysFlag": message.sys_flag,
        "properties": sorted(properties.items()),
        "sinkId": properties.get(SINK_ID_PROPERTY),
        "invalidReason": None,
    }


def rows_of(batch: pa.RecordBatch) -> list[dict[str, object]]:
    batch.validate(full=True)
    rows = batch.to_pylist()
    for row in rows:
        if row.get("properties") is not None:
            row["properties"] = sorted(row["properties"])
    return list(rows)


@pytest.mark.parametrize("seed", range(30))
def test_every_column_says_what_the_reader_of_the_client_says(seed: int) -> None:
    chance = random.Random(seed)
    count = chance.randrange(1, 60)
    plain = chance.random() < 0.4
    data = b"".join(
        a_record(chance, at, v6=not plain, packed=chance.random() < 0.5) for at in range(count)
    )
    decoder = RecordDecoder(KNOWN_COLUMNS, check_crc=True)
    batch = decoder.decode(data, broker_name="broker-a", offset_delta=7)
    expected = read_response(data, broker_name="broker-a", offset_delta=7).messages
    assert rows_of(batch) == [row_of(message) for message in expected], f"seed {seed}"


@pytest.mark.parametrize("name", KNOWN_COLUMNS)
def test_a_column_alone_is_the_same_as_among_all(name: str) -> None:
    chance = random.Random(5)
    data = b"".join(a_record(chance, at) for at in range(40))
    whole = RecordDecoder(KNOWN_COLUMNS).decode(data, broker_name="b")
    alone = RecordDecoder([name]).decode(data, broker_name="b")
    assert alone.schema.names == [name]
    assert alone.column(0).equals(whole.column(name))


def test_fields_come_in_the_order_asked_for_and_an_empty_answer_is_an_empty_batch() -> None:
    batch = RecordDecoder(["body", "queueId"]).decode(b"", broker_name="b")
    assert batch.num_rows == 0
    assert batch.schema.names == ["body", "queueId"]
    assert RecordDecoder(KNOWN_COLUMNS).decode(b"").num_rows == 0


def test_without_properties_the_map_is_null_and_the_rest_is_there() -> None:
    data = a_record(random.Random(1), 0)
    batch = RecordDecoder(ALL_COLUMNS, include_properties=False).decode(data, broker_name="b")
    assert batch.column("properties").null_count == 1
    assert batch.schema.equals(arrow_schema())


def test_records_at_chosen_places_only() -> None:
    chance = random.Random(3)
    data = b"".join(a_record(chance, at) for at in range(10))
    starts = record_starts(data)[[1, 4, 9]]
    batch = RecordDecoder(["queueOffset"]).decode_at(data, starts)
    assert batch.column(0).to_pylist() == [1, 4, 9]


def test_an_inner_batch_becomes_its_messages() -> None:
    flags = INNER_BATCH | NEED_UNWRAP
    inner = encode_batch([(0, b"one", b"TAGS\x01a\x02"), (0, b"two", b""), (0, b"", b"KEYS\x01k")])
    kind = CompressionType.LZ4
    outer = Record(
        2, 0, 100, 5, with_compression(flags, kind), 1, encode_host("1.2.3.4", 5), 2,
        encode_host("1.2.3.4", 6), 0, 0, compress(inner, kind), b"t", b"INNER_NUM\x013",
    )  # fmt: skip
    chance = random.Random(9)
    data = a_record(chance, 99) + encode_record(outer) + a_record(chance, 103)
    batch = RecordDecoder(ALL_COLUMNS).decode(data, broker_name="b")
    assert batch.column("queueOffset").to_pylist() == [99, 100, 101, 102, 103]
    assert batch.column("body").to_pylist()[1:4] == [b"one", b"two", b""]
    assert batch.column("tags").to_pylist()[1:4] == ["a", None, None]
    assert batch.column("keys").to_pylist()[1:4] == [None, None, "k"]


def test_a_time_that_no_timestamp_holds_is_null() -> None:
    host = encode_host("1.2.3.4", 5)
    far = Record(0, 0, 0, 0, 0, (1 << 63) - 1, host, 5, host, 0, 0, b"", b"t", b"")
    batch = RecordDecoder(["bornTimestamp", "storeTimestamp"]).decode(encode_record(far))
    assert batch.to_pylist() == [{"bornTimestamp": None, "storeTimestamp": time_of(5)}]


def test_a_damaged_body_is_found_when_checksums_are_checked() -> None:
    data = bytearray(a_record(random.Random(2), 0, packed=False) * 2)
    data[100] ^= 1
    assert RecordDecoder(["body"]).decode(data).num_rows == 2
    with pytest.raises(RemoteProtocolError, match="damaged"):
        RecordDecoder(["body"], check_crc=True).decode(data)


def test_no_damage_to_the_structure_is_anything_but_a_protocol_error() -> None:
    chance = random.Random(11)
    sound = b"".join(a_record(chance, at) for at in range(4))
    expected = rows_of(RecordDecoder(["queueOffset"]).decode(sound))
    refused = 0
    for _ in range(3_000):
        data = bytearray(sound)
        for _ in range(chance.randrange(1, 4)):
            data[chance.randrange(len(data))] = chance.randrange(256)
        cut = chance.randrange(len(data)) if chance.random() < 0.3 else len(data)
        try:
            batch = RecordDecoder(KNOWN_COLUMNS).decode(bytes(data[:cut]))
        except RemoteProtocolError:
            refused += 1
        else:
            batch.validate(full=True)
    assert refused > 500
    assert len(expected) == 4


def test_arrow_and_spark_agree_on_every_type() -> None:
    for fields in (ALL_COLUMNS, KNOWN_COLUMNS, ("body", "properties")):
        assert to_arrow_schema(spark_schema(fields), timezone="UTC") == arrow_schema(fields)


def test_starts_are_found_one_behind_the_other() -> None:
    chance = random.Random(4)
    records = [a_record(chance, at) for at in range(5)]
    expected = np.cumsum([0, *(len(record) for record in records[:-1])])
    assert record_starts(b"".join(records)).tolist() == expected.tolist()
