"""Options of a read: what is understood, what is refused, and that no secret shows."""

import pickle

import pytest

from downrange.model.topics import MessageQueue
from downrange.spark.columns import ALL_COLUMNS
from downrange.spark.option_values import OptionError
from downrange.spark.read_options import read_options
from downrange.spark.source import RocketMQDataSource

LEAST = {"nameServers": "127.0.0.1:9876", "subscribe": "orders"}


def test_defaults_of_batch_and_stream() -> None:
    batch = read_options(LEAST, is_stream=False)
    assert (batch.start.word, batch.end.word) == ("earliest", "latest")
    assert read_options(LEAST, is_stream=True).start.word == "latest"
    assert batch.fields == ALL_COLUMNS
    assert batch.fail_on_data_loss
    assert batch.include_properties
    assert batch.pull_group == "TOOLS_CONSUMER"
    assert batch.expression == ("TAG", "*")


def test_names_of_options_have_no_case() -> None:
    found = read_options(
        {"NAMESERVERS": "a:1;b:2,c:3", "Subscribe": "x, y", "FetchTimeoutMS": "1500"},
        is_stream=False,
    )
    assert found.connecting.name_servers == ("a:1", "b:2", "c:3")
    assert found.topics == ("x", "y")
    assert found.connecting.timeout_s == 1.5


def test_queues_filters_and_limits() -> None:
    found = read_options(
        {
            "nameServers": "a:1",
            "assign": '{"t": {"b": [0, 2]}}',
            "tags": "x || y",
            "groupId": "g",
            "maxOffsetsPerTrigger": "10",
            "startingOffsets": '{"t": {"b": {"0": 5}}}',
        },
        is_stream=True,
    )
    assert found.queues == {MessageQueue("t", "b", 0), MessageQueue("t", "b", 2)}
    assert found.topics == ("t",)
    assert found.wanted_tags == {"x", "y"}
    assert found.pull_group == "g"
    assert found.start.offsets == {MessageQueue("t", "b", 0): 5}
    assert found.offsets_per_trigger_max == 10


@pytest.mark.parametrize(
    ("change", "what"),
    [
        ({"startingOffsets": '{"orders": 5}'}, "option 'startingOffsets'"),
        ({"endingOffsets": "earliest"}, "option 'endingOffsets'"),
        ({"minPartitions": "0"}, "option 'minPartitions'"),
        ({"minPartitions": "many"}, "option 'minPartitions'"),
        ({"failOnDataLoss": "perhaps"}, "option 'failOnDataLoss'"),
        ({"subscribePattern": "x"}, "give one of the options"),
        ({"tags": "a", "sql92": "b > 1"}, "'tags' or 'sql92'"),
        ({"tlsCertPath": "/x"}, "useTls"),
        ({"subscribe": ""}, "option 'subscribe'"),
        ({"subscribe": "a b"}, "option 'subscribe'"),
        ({"assign": "{}"}, "give one of the options"),
        ({"nameServers": ""}, "option 'nameServers'"),
        ({"nameServers": "localhost"}, "host:port"),
        ({"groupId": "a b"}, "option 'groupId'"),
        ({"startingTimestamp": "yesterday"}, "option 'startingTimestamp'"),
        ({"startingTimestamp": "1", "startingOffsets": "latest"}, "say different things"),
        ({"startingOffsetsByTimestamp": "5"}, "startingOffsetsByTimestamp"),
        ({"fetchRetries": "-1"}, "option 'fetchRetries'"),
        ({"fetchTimeoutMs": "0"}, "option 'fetchTimeoutMs'"),
        ({"pullBatchSize": "9999999999999999999999"}, "option 'pullBatchSize'"),
        ({"sql92": " "}, "option 'sql92' is empty"),
        ({"tags": "||"}, "option 'tags'"),
        ({"securityToken": "x"}, "only with 'accessKey'"),
        ({"useTls": "true", "tlsKeyPath": "x"}, "need 'tlsCertPath'"),
        ({"dropDuplicate": "true"}, "option 'dropDuplicate' is unknown"),
    ],
)
def test_what_is_wrong_is_named(change: dict[str, str], what: str) -> None:
    with pytest.raises(OptionError, match=what):
        read_options(LEAST | change, is_stream=None)


def test_missing_options_are_named() -> None:
    with pytest.raises(OptionError, match="'nameServers' is missing"):
        read_options({"subscribe": "t"}, is_stream=False)
    with pytest.raises(OptionError, match="none of them"):
        read_options({"nameServers": "a:1"}, is_stream=False)
    with pytest.raises(OptionError, match="subscribePattern"):
        read_options({"nameServers": "a:1", "subscribePattern": "("}, is_stream=False)


def test_no_text_shows_a_secret_and_a_task_has_it() -> None:
    given = LEAST | {
        "accessKey": "someone",
        "secretKey": "TopSecret1",
        "securityToken": "T0k3n",
        "useTls": "true",
        "tlsCertPath": "/cert",
        "tlsKeyPassword": "Pa55",
    }
    found = read_options(given, is_stream=False)
    for text in (repr(found), str(found), repr(RocketMQDataSource(given))):
        assert not any(secret in text for secret in ("TopSecret1", "T0k3n", "Pa55"))
    again = pickle.loads(pickle.dumps(found))
    assert again == found
    assert again.connecting.credentials.secret_key == "TopSecret1"
    assert again.connecting.tls.key_password == "Pa55"
