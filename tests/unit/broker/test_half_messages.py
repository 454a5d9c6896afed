"""Half messages, their commits and the log of ends have the form that RocketMQ 5.5.0 gives them."""

from pathlib import Path

import msgspec
import pytest
from unit.broker.bench import Bench, captured_records, connection_pair, without_place

from downrange.broker.half_messages import HalfMessages
from downrange.broker.handlers.transaction import TransactionHandler
from downrange.model.names import HALF_TOPIC, OP_HALF_TOPIC, TRANSACTION_CHECK_MAX_TOPIC
from downrange.protocol.command import Command
from downrange.protocol.headers.fields import encode_header
from downrange.protocol.headers.send import SendRequest
from downrange.protocol.headers.transaction import (
    TRANSACTION_COMMIT,
    TRANSACTION_PENDING,
    TRANSACTION_ROLLBACK,
    EndTransactionRequest,
)
from downrange.protocol.message_id import encode_message_id
from downrange.protocol.properties import (
    decode_properties,
    encode_properties,
    encode_property_text,
    find_property,
)
from downrange.protocol.record import Record
from downrange.protocol.request_codes import RequestCode
from downrange.protocol.response_codes import ResponseCode
from downrange.protocol.sys_flag import TRANSACTION_PREPARED
from downrange.remoting.connection import Connection
from downrange.remoting.errors import Refused
from downrange.store.appended import Appended
from downrange.testing.virtual_time import run

GROUP = "producers"
PROPERTIES = {"UNIQ_KEY": "ID", "TRAN_MSG": "true", "PGROUP": GROUP, "WAIT": "true"}


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    return Bench(tmp_path)


@pytest.fixture
def halves(bench: Bench) -> HalfMessages:
    return HalfMessages(bench.store, bench.writer, bench.stats, bench.clock, bench.call_later)


@pytest.fixture
def handler(bench: Bench, halves: HalfMessages) -> TransactionHandler:
    return TransactionHandler(halves, bench.writer, bench.clock)


@pytest.fixture
def connection() -> Connection:
    async def make() -> Connection:
        return (await connection_pair())[1]

    return run(make())


def send_header(properties: dict[str, str], **fields: int) -> SendRequest:
    return SendRequest(
        producer_group=GROUP,
        topic="T",
        default_topic="TBW102",
        default_topic_queue_nums=4,
        queue_id=3,
        sys_flag=fields.get("sys_flag", TRANSACTION_PREPARED),
        born_timestamp=fields["born_timestamp"],
        flag=fields.get("flag", 9),
        properties=encode_property_text(properties),
    )


def put_half(
    bench: Bench,
    halves: HalfMessages,
    connection: Connection,
    properties: dict[str, str] | None = None,
    body: bytes = b"body",
) -> Appended:
    text = {**PROPERTIES, **(properties or {})}
    header = send_header(text, born_timestamp=bench.clock.wall_ms())
    appended = halves.put_half(header, 3, body, encode_properties(text), connection)
    bench.settle()
    return appended


def verdict(appended: Appended, commit_or_rollback: int, **changes: int | str | bool) -> Command:
    fields = encode_header(
        EndTransactionRequest(
            producer_group=GROUP,
            tran_state_table_offset=appended.queue_offset,
            commit_log_offset=appended.physical_offset,
            commit_or_rollback=commit_or_rollback,
            msg_id="ID",
        )
    )
    fields |= {name: str(value) for name, value in changes.items()}
    return Command(code=RequestCode.END_TRANSACTION, ext_fields=fields)


def ends(bench: Bench) -> list[bytes]:
    return [record.body for record in bench.records(OP_HALF_TOPIC)]


def captured_halves() -> list[Record]:
    return [r for r in captured_records() if r.topic == HALF_TOPIC.encode()]


# --- the bytes -----------------------------------------------------------------------------


def test_a_half_message_is_the_record_that_rocketmq_writes(
    bench: Bench, halves: HalfMessages, connection: Connection
) -> None:
    for theirs in captured_halves():
        text = decode_properties(theirs.properties)
        if "TRANSACTION_CHECK_TIMES" in text:
            continue
        real_queue = int(text.pop("REAL_QID"))
        topic = text.pop("REAL_TOPIC")
        del text["__transactionId__"]
        header = send_header(text, born_timestamp=theirs.born_timestamp, flag=theirs.flag)
        header = msgspec.structs.replace(header, topic=topic)
        halves.put_half(header, real_queue, theirs.body, encode_properties(text), connection)
        bench.settle()
        ours = bench.records(HALF_TOPIC)[-1]
        # The order of properties is that of a hash map there, and of arrival here.
        assert decode_properties(ours.properties) == decode_properties(theirs.properties)
        assert without_place(ours)._replace(properties=b"") == without_place(theirs)._replace(
            properties=b"", born_host=connection.host
        )


def test_a_committed_message_is_the_record_that_rocketmq_writes(
    bench: Bench, halves: HalfMessages
) -> None:
    by_offset = {half.physical_offset: half for half in captured_halves()}
    committed = [record for record in captured_records() if record.prepared_offset in by_offset]
    assert len(committed) >= 6
    for theirs in committed:
        halves.commit(by_offset[theirs.prepared_offset])
        bench.settle()
        ours = bench.records("orders", theirs.queue_id)[-1]
        assert ours.prepared_offset == theirs.prepared_offset
        assert without_place(ours) == without_place(theirs)


def test_ends_are_the_record_that_rocketmq_writes(bench: Bench, halves: HalfMessages) -> None:
    theirs = next(r for r in captured_records() if r.topic == OP_HALF_TOPIC.encode())
    for text in theirs.body.split(b",")[:-1]:
        halves.end(int(text))
    halves.flush_ends()
    bench.settle()
    (ours,) = bench.records(OP_HALF_TOPIC)
    assert without_place(ours) == without_place(theirs)._replace(
        born_timestamp=bench.clock.wall_ms()
    )


# --- putting -------------------------------------------------------------------------------


def test_a_half_message_has_a_queue_entry_and_its_delay_is_ignored(
    bench: Bench, halves: HalfMessages, connection: Connection
) -> None:
    appended = put_half(bench, halves, connection, {"DELAY": "3"})
    (record,) = bench.records(HALF_TOPIC)
    assert record.physical_offset == appended.physical_offset
    assert record.sys_flag == 0
    assert decode_properties(record.properties) == PROPERTIES | {
        "__transactionId__": "ID",
        "REAL_TOPIC": "T",
        "REAL_QID": "3",
    }


# --- ends ----------------------------------------------------------------------------------


def test_ends_are_gathered_for_three_seconds(bench: Bench, halves: HalfMessages) -> None:
    halves.end(12)
    bench.pass_time(2_999)
    halves.end(13)
    assert ends(bench) == []
    assert halves.has_ended(12)
    bench.pass_time(1)
    assert ends(bench) == [b"12,13,"]
    assert not halves.has_ended(12)
    halves.end(14)
    bench.pass_time(3_000)
    assert ends(bench) == [b"12,13,", b"14,"]


def test_many_ends_do_not_wait(bench: Bench, halves: HalfMessages) -> None:
    for offset in range(1000, 2000):
        halves.end(offset)
    bench.settle()
    assert [len(body) for body in ends(bench)] == [4100]
    halves.flush_ends()
    bench.settle()
    assert b"".join(ends(bench)) == b"".join(b"%d," % offset for offset in range(1000, 2000))


def test_an_end_is_known_until_the_log_of_ends_shows_it(bench: Bench, halves: HalfMessages) -> None:
    halves.end(5)
    halves.flush_ends()
    assert halves.has_ended(5)
    bench.settle()
    assert not halves.has_ended(5)


def test_ends_that_the_store_refuses_are_written_later(bench: Bench, halves: HalfMessages) -> None:
    halves.end(5)
    bench.fill_disk(is_full=True)
    bench.pass_time(3_000)
    assert halves.has_ended(5)
    bench.fill_disk(is_full=False)
    bench.pass_time(3_000)
    assert ends(bench) == [b"5,"]


# --- END_TRANSACTION -----------------------------------------------------------------------


def test_a_commit_gives_the_message_to_consumers_once(
    bench: Bench, halves: HalfMessages, handler: TransactionHandler, connection: Connection
) -> None:
    appended = put_half(bench, halves, connection)
    answer = handler.end(verdict(appended, TRANSACTION_COMMIT), connection)
    handler.end(verdict(appended, TRANSACTION_COMMIT), connection)
    bench.pass_time(3_000)
    assert isinstance(answer, Command)
    assert answer.code == ResponseCode.SUCCESS
    assert [record.body for record in bench.records("T", 3)] == [b"body"]
    assert ends(bench) == [b"0,"]
    assert bench.stats.put_by_topic["T"].count == 1


def test_a_rollback_leaves_only_its_end(
    bench: Bench, halves: HalfMessages, handler: TransactionHandler, connection: Connection
) -> None:
    appended = put_half(bench, halves, connection)
    handler.end(verdict(appended, TRANSACTION_ROLLBACK), connection)
    bench.pass_time(3_000)
    assert bench.records("T", 3) == []
    assert ends(bench) == [b"0,"]


def test_who_does_not_know_yet_is_not_answered(
    bench: Bench, halves: HalfMessages, handler: TransactionHandler, connection: Connection
) -> None:
    appended = put_half(bench, halves, connection)
    assert handler.end(verdict(appended, TRANSACTION_PENDING), connection) is None
    assert not halves.has_ended(0)


@pytest.mark.parametrize(
    ("changes", "remark"),
    [
        ({"producerGroup": "others"}, "The producer group wrong"),
        ({"tranStateTableOffset": 1}, "The transaction state table offset wrong"),
        ({"commitLogOffset": 7}, "Find prepared transaction message failed"),
    ],
)
def test_a_verdict_that_does_not_fit_its_half_message_is_refused(
    bench: Bench,
    halves: HalfMessages,
    handler: TransactionHandler,
    connection: Connection,
    changes: dict[str, int | str],
    remark: str,
) -> None:
    appended = put_half(bench, halves, connection)
    with pytest.raises(Refused) as refusal:
        handler.end(verdict(appended, TRANSACTION_COMMIT, **changes), connection)
    assert (refusal.value.code, refusal.value.remark) == (ResponseCode.SYSTEM_ERROR, remark)
    assert bench.records("T", 3) == []


def test_a_message_that_is_no_half_message_cannot_be_committed(
    bench: Bench, handler: TransactionHandler, connection: Connection
) -> None:
    text = encode_properties({"PGROUP": GROUP, "REAL_TOPIC": "T", "REAL_QID": "3"})
    appended = bench.writer.put("other", 0, b"body", text)
    with pytest.raises(Refused, match="Find prepared"):
        handler.end(verdict(appended, TRANSACTION_COMMIT), connection)


def test_a_producer_that_asked_for_peace_is_refused_after_it(
    bench: Bench, halves: HalfMessages, handler: TransactionHandler, connection: Connection
) -> None:
    immune = {"CHECK_IMMUNITY_TIME_IN_SECONDS": "10"}
    appended = put_half(bench, halves, connection, immune)
    bench.pass_time(10_001)
    with pytest.raises(Refused) as refusal:
        handler.end(verdict(appended, TRANSACTION_COMMIT), connection)
    assert refusal.value.code == ResponseCode.ILLEGAL_OPERATION
    checked = verdict(appended, TRANSACTION_COMMIT, fromTransactionCheck="true")
    handler.end(checked, connection)
    assert halves.has_ended(appended.queue_offset)


def test_a_commit_that_the_store_refuses_can_come_again(
    bench: Bench, halves: HalfMessages, handler: TransactionHandler, connection: Connection
) -> None:
    appended = put_half(bench, halves, connection)
    bench.fill_disk(is_full=True)
    with pytest.raises(Refused):
        handler.end(verdict(appended, TRANSACTION_COMMIT), connection)
    bench.fill_disk(is_full=False)
    handler.end(verdict(appended, TRANSACTION_COMMIT), connection)
    bench.settle()
    assert len(bench.records("T", 3)) == 1


# --- RESUME_CHECK_HALF_MESSAGE -------------------------------------------------------------


def test_a_half_message_that_was_given_up_can_be_resumed(
    bench: Bench, handler: TransactionHandler, connection: Connection
) -> None:
    text = encode_properties(
        {"TRANSACTION_CHECK_TIMES": "15", "REAL_TOPIC": "T", "REAL_QID": "3", "PGROUP": GROUP}
    )
    appended = bench.writer.put(TRANSACTION_CHECK_MAX_TOPIC, 0, b"body", text)
    message_id = encode_message_id(bench.store.settings.store_host, appended.physical_offset)
    request = Command(
        code=RequestCode.RESUME_CHECK_HALF_MESSAGE, ext_fields={"msgId": message_id, "topic": "T"}
    )
    answer = handler.resume(request, connection)
    bench.settle()
    assert isinstance(answer, Command)
    assert answer.code == ResponseCode.SUCCESS
    (record,) = bench.records(HALF_TOPIC)
    assert record.body == b"body"
    assert find_property(record.properties, b"TRANSACTION_CHECK_TIMES") == b"0"


@pytest.mark.parametrize("message_id", ["nonsense", "7F00000100002A9F0000000000000007"])
def test_what_is_not_there_cannot_be_resumed(
    handler: TransactionHandler, connection: Connection, message_id: str
) -> None:
    request = Command(code=RequestCode.RESUME_CHECK_HALF_MESSAGE, ext_fields={"msgId": message_id})
    with pytest.raises(Refused, match="failed"):
        handler.resume(request, connection)
