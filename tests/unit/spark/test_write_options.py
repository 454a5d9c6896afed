"""What a write may be told, and that everything else is refused by name."""

import pickle

import pytest
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    DataType,
    IntegerType,
    LongType,
    MapType,
    ShortType,
    StringType,
    StructType,
)

from downrange.spark.option_values import OptionError
from downrange.spark.write_columns import SinkColumnError, check_write_columns
from downrange.spark.write_options import WriteOptions, write_options
from downrange.spark.writer import RocketMQStreamWriter, RocketMQWriter

LEAST = {"nameServers": "127.0.0.1:9876"}


def test_little_has_to_be_said() -> None:
    options = write_options(LEAST)
    assert options == WriteOptions(name_servers=("127.0.0.1:9876",))
    assert write_options({"NAMESERVERS": "a:1,b:2"}).name_servers == ("a:1", "b:2")


def test_every_option_arrives() -> None:
    given = {
        "topic": "orders", "producerGroup": "g", "namespace": "ns", "accessKey": "ak",
        "secretKey": "sk", "securityToken": "st", "useTls": "true",
        "tlsTrustCertPath": "/ca", "batchBytes": "2048",
        "maxMessageSize": "4096", "maxInFlight": "9", "retries": "0", "sendTimeoutMs": "1500",
        "deliveryTimeoutMs": "2500", "requireSendOk": "false", "reservedProperties": "drop",
        "stampRows": "false", "checkpointLocation": "/c",
    }  # fmt: skip
    options = write_options(LEAST | given)
    assert (options.topic, options.producer_group, options.namespace) == ("orders", "g", "ns")
    assert options.credentials is not None
    assert options.credentials.security_token == "st"
    assert (options.batch_bytes, options.message_bytes_max, options.in_flight_max) == (
        2048, 4096, 9,
    )  # fmt: skip
    assert (options.retries, options.send_timeout_s, options.delivery_timeout_s) == (0, 1.5, 2.5)
    assert (options.requires_send_ok, options.drops_reserved, options.stamps_rows) == (
        False, True, False,
    )  # fmt: skip
    assert options.client_settings().use_tls
    assert options.tls is not None
    assert options.tls.ca_file == "/ca"
    assert options.producer_settings().message_bytes_max == 4096
    assert pickle.loads(pickle.dumps(options)) == options


def test_a_secret_is_in_no_text() -> None:
    options = write_options(LEAST | {"accessKey": "ak", "secretKey": "hush", "topic": "t"})
    assert "hush" not in repr(options)
    with pytest.raises(OptionError) as caught:
        write_options(LEAST | {"secretKey": "hush"})
    assert "hush" not in str(caught.value)
    assert "secretKey" in str(caught.value)


@pytest.mark.parametrize(
    ("given", "reason"),
    [
        ({}, "'nameServers' is missing"),
        ({"nameServers": "here"}, "'nameServers'"),
        (LEAST | {"batchByts": "1"}, "'batchByts' is unknown.*batchBytes"),
        (LEAST | {"batchBytes": "many"}, "'batchBytes': 'many' is no whole number"),
        (LEAST | {"batchBytes": "1"}, "'batchBytes': 1 is not between"),
        (LEAST | {"batchBytes": "8388608"}, "'batchBytes' is 8388608, over 'maxMessageSize'"),
        (LEAST | {"topic": "a b"}, "'topic'"),
        (LEAST | {"producerGroup": "a b"}, "'producerGroup'"),
        (LEAST | {"useTls": "maybe"}, "'useTls': 'maybe' is neither true nor false"),
        (LEAST | {"tlsCertPath": "/c"}, "'tlsCertPath' is of use only with 'useTls' true"),
        (LEAST | {"reservedProperties": "keep"}, "'keep' is neither fail nor drop"),
        (LEAST | {"deliveryTimeoutMs": "0"}, "'deliveryTimeoutMs'"),
    ],
)
def test_a_wrong_option_is_named(given: dict[str, str], reason: str) -> None:
    with pytest.raises(OptionError, match=reason):
        write_options(given)


@pytest.mark.parametrize(
    ("columns", "topic", "reason"),
    [
        ("body binary", None, "no column 'topic' and no option 'topic'"),
        ("topic string, body binary", "t", "column 'topic' and option 'topic'"),
        ("tags string", "t", "one column 'body'"),
        ("body binary, value binary", "t", "both are there"),
        ("body int", "t", "column 'body' is int, not binary or string"),
        ("body binary, keys array<string>", "t", "column 'keys' is array<string>, not string"),
        ("body binary, properties map<string,int>", "t", r"not map<string,string>"),
        ("body binary, delayLevel string", "t", "column 'delayLevel' is string, not tinyint or"),
        ("body binary, colour string", "t", "column 'colour' cannot be written"),
        ("body binary, Tags string", "t", "is 'tags' meant"),
        ("body binary, brokerName string", "t", "only together with 'queueId'"),
        ("body binary, queueId int, orderingKey string", "t", "both choose the queue"),
    ],
)
def test_a_wrong_column_is_named(columns: str, topic: str | None, reason: str) -> None:
    with pytest.raises(SinkColumnError, match=reason):
        check_write_columns(schema_of(columns), topic)


def test_what_can_be_written_is_accepted() -> None:
    everything = schema_of(
        "topic string, value string, keys string, tags string, properties map<string,string>, "
        "delayLevel int, delayTimeMs bigint, queueId smallint, brokerName string"
    )
    check_write_columns(everything, None)
    check_write_columns(schema_of("body binary, orderingKey string"), "t")


@pytest.mark.parametrize("kind", [RocketMQWriter, RocketMQStreamWriter])
def test_a_topic_cannot_be_overwritten(
    kind: type[RocketMQWriter] | type[RocketMQStreamWriter],
) -> None:
    options = write_options(LEAST | {"topic": "t"})
    with pytest.raises(OptionError, match="cannot be overwritten"):
        kind(options, schema_of("body binary"), overwrite=True)


def schema_of(columns: str) -> StructType:
    types: dict[str, DataType] = {
        "binary": BinaryType(), "string": StringType(), "int": IntegerType(), "bigint": LongType(),
        "smallint": ShortType(), "array<string>": ArrayType(StringType()),
        "map<string,string>": MapType(StringType(), StringType()),
        "map<string,int>": MapType(StringType(), IntegerType()),
    }  # fmt: skip
    schema = StructType()
    for column in columns.split(", "):
        name, text = column.split(" ")
        schema = schema.add(name, types[text])
    return schema
