"""Messages that cannot be decoded: a clear failure, or a null body with the reason."""

import zlib
from collections.abc import Callable
from pathlib import Path

import pytest
from unit.client.consuming import Site
from unit.client.invalid_records import SENT, Sent
from unit.spark.scripted_server import HOST, ScriptedServer, pulled

from downrange.protocol.command import Command, response
from downrange.protocol.headers.fields import encode_header
from downrange.protocol.headers.pull import PullResponse
from downrange.protocol.record import Record, encode_record
from downrange.protocol.request_codes import RequestCode
from downrange.spark import invalid_records
from downrange.spark.arrow_records import RecordDecoder
from downrange.spark.columns import ALL_COLUMNS, INVALID_REASON
from downrange.spark.fetch import InvalidMessageError, RangeReader
from downrange.spark.option_values import OptionError
from downrange.spark.planning import QueueRange
from downrange.spark.read_options import read_options
from downrange.spark.record_heads import read_heads, record_starts
from downrange.spark.store_files import StoreDamageError, StoreReader
from downrange.spark.store_options import store_options
from downrange.testing.virtual_time import run

Rows = list[tuple[int, bytes | None, bool]]  # offset, body, whether there is a reason


def a_record(offset: int, sent: Sent | None = None) -> bytes:
    body, flag = sent or Sent(b"%d" % offset, 0)
    return encode_record(
        Record(0, 0, offset, offset * 100, flag, 1, HOST, 2, HOST, 0, 0, body, b"t", b"k\x01v\x02")
    )


def _flipped(record: bytes) -> bytes:
    return record[:88] + bytes([record[88] ^ 1]) + record[89:]


def _unknown_magic(record: bytes) -> bytes:
    return record[:4] + b"\x01\x02\x03\x04" + record[8:]


def _short_size(record: bytes) -> bytes:
    return (7).to_bytes(4, "big") + record[4:]


def _long_body(record: bytes) -> bytes:
    return record[:84] + b"\x7f\xff\xff\xff" + record[88:]


BAD: dict[str, bytes] = {name: a_record(2, sent) for name, sent in SENT.items()} | {
    "wrong checksum": _flipped(a_record(2)),
    "unknown magic": _unknown_magic(a_record(2)),
    "size of 7": _short_size(a_record(2)),
    "body longer than the record": _long_body(a_record(2)),
}


def read(bad: bytes, **more: str) -> tuple[Rows, list[str]]:
    """What a task reads of offsets 0 to 5 of which 2 is bad, and the names of the columns."""

    def script(command: Command) -> list[Command] | None:
        if command.code != RequestCode.PULL_MESSAGE:
            return []
        start = pulled(command).queue_offset
        end = min(start + pulled(command).max_msg_nums, 5)
        body = b"".join(bad if at == 2 else a_record(at) for at in range(start, end))
        header = PullResponse(
            suggest_which_broker_id=0, next_begin_offset=end, min_offset=0, max_offset=5
        )
        return [response(command, 0, ext_fields=encode_header(header), body=body)]

    with ScriptedServer(script) as server:
        options = read_options(
            {"nameServers": server.address, "subscribe": "t", "checkCrc": "true", **more},
            is_stream=False,
        )
        reader = RangeReader(options, sleep=lambda _: None)
        try:
            batches = list(reader.read([QueueRange("t", "b", 0, 0, 5)]))
        finally:
            reader.close()
    rows = [row for batch in batches for row in batch.to_pylist()]
    found = [
        (row["queueOffset"], row.get("body"), row.get(INVALID_REASON) is not None) for row in rows
    ]
    return found, batches[0].schema.names


@pytest.mark.parametrize("bad", BAD.values(), ids=BAD)
def test_a_read_fails_with_topic_queue_offset_and_the_option(bad: bytes) -> None:
    text = (
        r"offset 2 of queue 0 of topic 't' on 'b' cannot be decoded: .* Set the option "
        r"invalidMessages to null"
    )
    with pytest.raises(InvalidMessageError, match=text):
        read(bad)


@pytest.mark.parametrize("bad", BAD.values(), ids=BAD)
def test_with_null_the_message_is_a_row_without_a_body_and_with_the_reason(bad: bytes) -> None:
    rows, columns = read(bad, invalidMessages="null")
    assert rows == [
        (0, b"0", False), (1, b"1", False), (2, None, True), (3, b"3", False), (4, b"4", False),
    ]  # fmt: skip
    assert columns == [*ALL_COLUMNS, INVALID_REASON]


def test_columns_are_chosen_as_ever() -> None:
    rows, columns = read(BAD["cut lz4"], invalidMessages="null", fields="queueOffset,invalidReason")
    assert [has_reason for _, _, has_reason in rows] == [False, False, True, False, False]
    assert columns == ["queueOffset", "invalidReason"]
    rows, _ = read(a_record(2), fields="queueOffset,body,invalidReason")
    assert not any(has_reason for _, _, has_reason in rows)
    with pytest.raises(OptionError, match="neither fail nor null"):
        read(a_record(2), invalidMessages="drop")


def test_bodies_that_expand_come_in_several_batches(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(invalid_records, "INFLATED_BYTES_MAX", 25_000)
    packed = Sent(zlib.compress(bytes(10_000)), SENT["cut zlib"].sys_flag)
    data = b"".join(a_record(at, packed) for at in range(9))
    decoder = RecordDecoder(("queueOffset", "body"))
    batches = list(decoder.batches(data, read_heads(data, record_starts(data))))
    assert len(batches) > 3
    assert [at for batch in batches for at in batch.column(0).to_pylist()] == list(range(9))
    assert max(batch.num_rows for batch in batches) <= 2


@pytest.fixture
def store(tmp_path: Path) -> Callable[[str], Path]:
    def write(variant: str) -> Path:
        async def main() -> None:
            async with Site(tmp_path) as site:
                await site.create("orders")
                await site.send("orders", b"first")
                await site.send("orders", SENT[variant].body, sys_flag=SENT[variant].sys_flag)
                await site.send("orders", b"second")

        run(main())
        return tmp_path / "b1"

    return write


@pytest.mark.parametrize("variant", SENT)
def test_files_of_a_store_are_read_past_it_on_demand(
    store: Callable[[str], Path], variant: str
) -> None:
    given = {"path": str(store(variant)), "subscribe": "orders"}

    def rows(**more: str) -> list[tuple[int, bytes | None, bool]]:
        reader = StoreReader(store_options({**given, **more}))
        return [
            (row["queueOffset"], row["body"], row.get(INVALID_REASON) is not None)
            for part in reader.partitions()
            for batch in reader.read(part)
            for row in batch.to_pylist()
        ]

    with pytest.raises(StoreDamageError, match="set invalidMessages to null"):
        rows()
    expected = [(0, b"first", False), (1, None, True), (2, b"second", False)]
    assert rows(invalidMessages="null") == expected
    assert rows(onDamage="skip") == [expected[0], expected[2]]
