"""Which rows travel together, and where they go."""

import pyarrow as pa
import pytest
from unit.spark.writing import QUEUES, messages_of, parcels_of

from downrange.protocol.java_hash import java_hash
from downrange.spark.parcels import Parcel
from downrange.spark.row_encoding import SinkRowError


def bodies(parcel: Parcel) -> list[bytes]:
    return [body for body, _ in messages_of(parcel)]


def test_batches_are_as_large_as_they_may_be_and_no_larger() -> None:
    batch = pa.record_batch({"body": pa.array([b"x" * 100] * 50)})
    parcels = parcels_of(batch, batch_bytes=2048)
    assert sum(parcel.rows for parcel in parcels) == 50
    assert all(len(parcel.body) <= 2048 for parcel in parcels)
    one = len(parcels[0].body) // parcels[0].rows
    assert all(len(parcel.body) + one > 2048 for parcel in parcels[:-1])
    assert [parcel.first_row for parcel in parcels] == [
        100 + sum(parcel.rows for parcel in parcels[:index]) for index in range(len(parcels))
    ]


def test_a_row_over_the_batch_size_goes_by_itself() -> None:
    batch = pa.record_batch({"body": pa.array([b"a", b"x" * 5000, b"b"])})
    parcels = parcels_of(batch, batch_bytes=2048)
    assert [bodies(parcel) for parcel in parcels] == [[b"a"], [b"x" * 5000], [b"b"]]


def test_a_body_at_the_limit_goes_as_a_single_message_and_one_over_it_is_refused() -> None:
    batch = pa.record_batch({"body": pa.array([b"a", b"x" * 4096])})
    small, large = parcels_of(batch, batch_bytes=4096, message_bytes_max=4096)
    assert small.message is None
    assert large.message is not None
    assert large.message.body == b"x" * 4096
    assert large.message.properties["__DOWNRANGE_SINK_ID"] == "query:7:3:101"
    with pytest.raises(SinkRowError, match="row 101 has a body of 4096 bytes, over 4095"):
        parcels_of(batch, batch_bytes=4095, message_bytes_max=4095)


def test_topics_are_not_mixed_and_keep_their_order() -> None:
    topics = ["b", "a", "b", "a", "b"]
    batch = pa.record_batch(
        {"topic": pa.array(topics), "body": pa.array([b"%d" % row for row in range(5)])}
    )
    found = {parcel.topic: bodies(parcel) for parcel in parcels_of(batch, topic=None)}
    assert found == {"b": [b"0", b"2", b"4"], "a": [b"1", b"3"]}
    stamps = {
        body: properties["__DOWNRANGE_SINK_ID"]
        for parcel in parcels_of(batch, topic=None)
        for body, properties in messages_of(parcel)
    }
    assert stamps == {b"%d" % row: f"query:7:3:{100 + row}" for row in range(5)}


def test_an_ordering_key_always_has_the_queue_that_java_would_choose() -> None:
    keys = [f"key-{row % 17}" for row in range(200)]
    batch = pa.record_batch(
        {"body": pa.array([b"%d" % row for row in range(200)]), "orderingKey": pa.array(keys)}
    )
    by_key: dict[str, list[int]] = {}
    for parcel in parcels_of(batch):
        for body, properties in messages_of(parcel):
            key = properties["__SHARDINGKEY"]
            assert parcel.queue == QUEUES[abs(java_hash(key)) % len(QUEUES)]
            by_key.setdefault(key, []).append(int(body))
    assert all(rows == sorted(rows) for rows in by_key.values())
    assert sum(map(len, by_key.values())) == 200


def test_a_row_without_an_ordering_key_may_go_anywhere() -> None:
    keys = pa.array([None, "k", None])
    batch = pa.record_batch({"body": pa.array([b"0", b"1", b"2"]), "orderingKey": keys})
    found = {parcel.queue is None: bodies(parcel) for parcel in parcels_of(batch)}
    assert found == {True: [b"0", b"2"], False: [b"1"]}


def test_a_queue_can_be_named_with_or_without_its_broker() -> None:
    batch = pa.record_batch(
        {
            "body": pa.array([b"0", b"1", b"2"]),
            "queueId": pa.array([3, 3, None]),
            "brokerName": pa.array(["b", None, None]),
        }
    )
    for partition, broker in ((0, "a"), (1, "b"), (2, "a")):
        found = {
            body: parcel.queue
            for parcel in parcels_of(batch, partition=partition)
            for body in bodies(parcel)
        }
        assert found[b"0"] == QUEUES[7]
        assert found[b"1"] == next(
            one for one in QUEUES if one.broker_name == broker and one.queue_id == 3
        )
        assert found[b"2"] is None


def test_delayed_rows_go_singly_with_their_delay() -> None:
    batch = pa.record_batch(
        {
            "body": pa.array([b"0", b"1", b"2", b"3"]),
            "delayLevel": pa.array([None, 3, 0, None]),
            "delayTimeMs": pa.array([None, None, 0, 1500], pa.int64()),
        }
    )
    parcels = parcels_of(batch)
    together = [parcel for parcel in parcels if parcel.message is None]
    assert [bodies(parcel) for parcel in together] == [[b"0", b"2"]]
    single = {
        parcel.message.body: parcel.message.properties for parcel in parcels if parcel.message
    }
    assert single[b"1"]["DELAY"] == "3"
    assert single[b"3"]["TIMER_DELAY_MS"] == "1500"
    assert "DELAY" not in single[b"3"]
