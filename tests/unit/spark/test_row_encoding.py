"""Rows become messages exactly as a producer would have written them."""

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from unit.spark.writing import encoder, messages_of, parcels_of

from downrange.client.message import Message
from downrange.spark.row_encoding import SinkRowError

MAP = pa.map_(pa.string(), pa.string())
TEXTS = st.text(
    st.characters(exclude_categories=["Cs"], exclude_characters="\x01\x02"), max_size=20
)


def test_a_row_has_its_body_an_id_of_its_own_and_where_it_comes_from() -> None:
    (parcel,) = parcels_of(pa.record_batch({"body": pa.array([b"a", b"bc"])}))
    (first, second) = messages_of(parcel)
    assert (first[0], second[0]) == (b"a", b"bc")
    assert first[1]["__DOWNRANGE_SINK_ID"] == "query:7:3:100"
    assert second[1]["__DOWNRANGE_SINK_ID"] == "query:7:3:101"
    assert first[1]["UNIQ_KEY"][:-4] == second[1]["UNIQ_KEY"][:-4]
    assert int(second[1]["UNIQ_KEY"][-4:], 16) == int(first[1]["UNIQ_KEY"][-4:], 16) + 1
    assert len(first[1]["UNIQ_KEY"]) == 32
    assert (parcel.rows, parcel.first_row, parcel.last_row) == (2, 100, 101)


def test_without_a_stamp_only_the_id_is_added() -> None:
    batch = pa.record_batch({"value": pa.array(["é"])})
    (parcel,) = parcels_of(batch, by=encoder(stamp=""))
    ((body, properties),) = messages_of(parcel)
    assert body == "é".encode()
    assert list(properties) == ["UNIQ_KEY"]


@settings(max_examples=60, deadline=None)
@given(
    st.lists(
        st.tuples(
            st.binary(min_size=1, max_size=40),
            st.none() | TEXTS,
            st.none() | TEXTS,
            st.none() | st.dictionaries(TEXTS.filter(bool), st.none() | TEXTS, max_size=3),
        ),
        min_size=1,
        max_size=12,
    ),
    st.integers(0, 3),
)
def test_columns_become_properties_whatever_their_text(
    rows: list[tuple[bytes, str | None, str | None, dict[str, str | None] | None]], cut: int
) -> None:
    maps = [None if row[3] is None else list(row[3].items()) for row in rows]
    batch = pa.record_batch(
        {
            "body": pa.array([row[0] for row in rows]),
            "tags": pa.array([row[1] for row in rows], pa.string()),
            "keys": pa.array([row[2] for row in rows], pa.string()),
            "properties": pa.array(maps, MAP),
        }
    ).slice(min(cut, len(rows) - 1))
    rows = rows[min(cut, len(rows) - 1) :]
    found = [
        message
        for parcel in parcels_of(batch, by=encoder(drops_reserved=True))
        for message in messages_of(parcel)
    ]
    assert [body for body, _ in found] == [row[0] for row in rows]
    for (_, properties), (_, tags, keys, given_map) in zip(found, rows, strict=True):
        wanted = {name: value for name, value in (given_map or {}).items() if value}
        wanted = {name: value for name, value in wanted.items() if name not in {"TAGS", "KEYS"}}
        wanted |= {"TAGS": tags} if tags else {}
        wanted |= {"KEYS": keys} if keys else {}
        added = {"UNIQ_KEY", "__DOWNRANGE_SINK_ID"}
        assert {name: properties[name] for name in properties if name not in added} == wanted


def test_the_wire_form_is_that_of_the_client() -> None:
    maps = pa.array([[("a", "b")]], MAP)
    batch = pa.record_batch({"body": pa.array([b"x"]), "properties": maps})
    (parcel,) = parcels_of(batch, by=encoder(stamp="", namespace="ns"))
    ((_, properties),) = messages_of(parcel)
    ours = Message("orders", b"x", properties={"a": "b"}).properties
    assert set(properties) - {"UNIQ_KEY", "INSTANCE_ID"} == set(ours) - {"WAIT"}
    assert properties["INSTANCE_ID"] == "ns"


def test_a_property_of_rocketmq_is_refused_or_left_out() -> None:
    maps = pa.array([[("a", "1")], [("UNIQ_KEY", "2"), ("b", "3")]], MAP)
    batch = pa.record_batch({"body": pa.array([b"x", b"y"]), "properties": maps})
    with pytest.raises(SinkRowError, match=r"row 101 has property 'UNIQ_KEY'.*reservedProp"):
        parcels_of(batch)
    (parcel,) = parcels_of(batch, by=encoder(drops_reserved=True))
    first, second = (properties for _, properties in messages_of(parcel))
    assert (first["a"], second["b"]) == ("1", "3")
    assert second["UNIQ_KEY"] != "2"


@pytest.mark.parametrize(
    ("columns", "reason"),
    [
        ({"body": [b"x", b""]}, "row 101 has no body"),
        ({"body": [b"x", None]}, "row 101 has no body"),
        ({"body": [b"x", b"y"], "tags": ["a", "b\x01"]}, "row 101 has the character 0x01 or"),
        ({"body": [b"x", b"y"], "keys": ["a\x02", "b"]}, "row 100 .* in column 'keys'"),
        ({"body": [b"x", b"y"], "keys": [None, "k" * 33_000]}, "row 101 has over 32767 bytes"),
        ({"body": [b"x", b"y"], "delayLevel": [1, -1]}, "row 101 has a negative delayLevel"),
        (
            {"body": [b"x", b"y"], "delayLevel": [1, 1], "delayTimeMs": [0, 5]},
            "row 101 has both delayLevel and delayTimeMs",
        ),
        ({"body": [b"x", b"y"], "queueId": [0, 9]}, "row 101 asks for queue 9, and topic 'orders'"),
        (
            {"body": [b"x", b"y"], "queueId": [0, 1], "brokerName": ["a", "c"]},
            "row 101 asks for queue 1 of broker 'c'",
        ),
    ],
)
def test_a_row_that_cannot_be_a_message_is_named(
    columns: dict[str, list[object]], reason: str
) -> None:
    with pytest.raises(SinkRowError, match=reason):
        parcels_of(pa.record_batch({name: pa.array(values) for name, values in columns.items()}))


def test_a_separator_in_a_map_is_refused() -> None:
    maps = pa.array([[("a", "1")], [("b", "2\x02")]], MAP)
    batch = pa.record_batch({"body": pa.array([b"x", b"y"]), "properties": maps})
    with pytest.raises(SinkRowError, match=r"row 101 .* in column 'properties'"):
        parcels_of(batch)


def test_a_row_without_a_topic_is_named() -> None:
    batch = pa.record_batch({"body": pa.array([b"x", b"y"]), "topic": pa.array(["t", None])})
    with pytest.raises(SinkRowError, match="row 101 has no topic"):
        parcels_of(batch, topic=None)
