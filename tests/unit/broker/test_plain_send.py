"""A plain send or batch goes the short way, and nobody can tell from the answer or from the log."""

import asyncio
from collections.abc import Sequence
from pathlib import Path

import pytest
from unit.broker.one_broker import ADDRESS, OneBroker, small_files

from downrange.broker.settings import BrokerSettings
from downrange.protocol.batch import encode_batch
from downrange.protocol.command import Command, Serialization
from downrange.protocol.command_codec import decode_command, encode_command
from downrange.protocol.frame import FrameDecoder
from downrange.protocol.message_id import decode_message_id
from downrange.protocol.record import Record, decode_record, decode_records
from downrange.protocol.request_codes import RequestCode
from downrange.remoting.client import RemotingClient
from downrange.remoting.turn import Asker
from downrange.store.settings import FlushMode
from downrange.testing.virtual_time import run

ID = "7F000001000100000000000000000ABC"
TEXTS = [
    f"UNIQ_KEY\x01{ID}\x02WAIT\x01true\x02",
    f"UNIQ_KEY\x01{ID}\x02WAIT\x01true",
    f"TAGS\x01TagA\x02UNIQ_KEY\x01{ID}\x02",
    f"KEYS\x01k1 k2\x02UNIQ_KEY\x01{ID}\x02TAGS\x01TagB\x02",
    f"KEYS\x01DELAY\x02UNIQ_KEY\x01{ID}\x02",
    f"UNIQ_KEY\x01{ID}\x02DELAY\x013\x02",
    f"UNIQ_KEY\x01{ID}\x02CLUSTER\x01elsewhere\x02",
    f"UNIQ_KEY\x01{ID}\x02WAIT\x01false\x02",
    f"MY_UNIQ_KEY\x01{ID}\x02",
    'UNIQ_KEY\x01needs "an" escape\x02',
    "UNIQ_KEY\x01\x02",
    "KEYS\x01\x02",
    "",
]
BATCH = [
    (0, b"first", f"UNIQ_KEY\x01{ID}\x02TAGS\x01TagA\x02".encode()),
    (7, b"", b""),
    (0, b"last", b"KEYS\x01k3\x02DELAY\x013\x02"),
]
# The text of a send, and its body if it is a batch.
SENDS: list[tuple[str] | tuple[str, bytes]] = [
    *((text,) for text in TEXTS),
    (TEXTS[0], encode_batch(BATCH)),
    (TEXTS[0], encode_batch(BATCH[:1])),
    ('UNIQ_KEY\x01needs "an" escape\x02', encode_batch(BATCH)),
    (TEXTS[0], encode_batch(BATCH)[:-1]),
    ("", encode_batch(BATCH)),
]
FIELDS = {
    "a": "producers", "b": "orders", "c": "TBW102", "d": "4", "e": "1", "f": "0",
    "g": "1700000000000", "h": "9", "i": "", "j": "0", "k": "false", "m": "false",
}  # fmt: skip


FIRST_OPAQUE = 100
TOPICS = ("orders", "orders", "orders", "bills")


async def send_all(
    broker: OneBroker, encoding: Serialization, *, shortcut: bool, at_once: bool
) -> tuple[list[Command], list[Record], int]:
    """Answers, records of the log, and how many frames went the short way."""
    taken = 0
    served = broker.broker._server.turn.shortcut
    assert served is not None

    def counted(askers: Sequence[Asker]) -> None:
        nonlocal taken
        before = sum(asker.position for asker in askers)
        if shortcut:
            served(askers)
        taken += sum(asker.position for asker in askers) - before

    broker.broker._server.turn.shortcut = counted
    connection = await RemotingClient(broker.network).connect(ADDRESS)
    for topic in dict.fromkeys(TOPICS):  # the first message creates it
        fields = {**FIELDS, "b": topic}
        await connection.call(RequestCode.SEND_MESSAGE_V2, fields, b"first", timeout_s=3)
    calls = []
    frames: list[bytes | memoryview] = []
    for number, (text, *batch) in enumerate([*SENDS, *SENDS], start=FIRST_OPAQUE):
        request = Command(
            code=RequestCode.SEND_BATCH_MESSAGE if batch else RequestCode.SEND_MESSAGE_V2,
            opaque=number,
            ext_fields={
                **FIELDS,
                "b": TOPICS[number % len(TOPICS)],
                "e": str(number % 4),
                "i": text,
                "m": "true" if batch else "false",
            },
            body=batch[0] if batch else b"body %d" % number,
            serialization=encoding,
        )
        future: asyncio.Future[Command] = asyncio.get_running_loop().create_future()
        connection._calls._futures[number] = future
        calls.append(future)
        frames.append(encode_command(request))
        if not at_once:
            connection._write([frames.pop()])
            await future
    connection._write(frames)
    answers = [await future for future in calls]
    store = broker.broker._store
    assert store is not None
    view = store.log.view(0, store.log.max_offset)
    assert view is not None
    return answers, list(decode_records(bytes(view))), taken


def neutral(command: Command) -> dict[str, str]:
    """What a client sees, but for ids that are new in every broker."""
    fields = dict(command.ext_fields or {})
    if fields.get("transactionId", ID) != ID and '"' not in fields["transactionId"]:
        fields["transactionId"] = "made by the broker"
    return {"code": str(command.code), **fields}


@pytest.mark.parametrize("encoding", list(Serialization))
@pytest.mark.parametrize("flush", list(FlushMode))
@pytest.mark.parametrize("at_once", [False, True])
def test_the_short_way_and_the_long_way_come_to_the_same(
    tmp_path: Path, encoding: Serialization, flush: FlushMode, at_once: bool
) -> None:
    async def compare() -> None:
        results = []
        for shortcut in (True, False):
            settings = BrokerSettings(address="127.0.0.1", broker_name="b1")
            root = tmp_path / str(shortcut)
            async with OneBroker(root, settings, small_files(root, flush_mode=flush)) as broker:
                found = await send_all(broker, encoding, shortcut=shortcut, at_once=at_once)
                results.append(found)
        (short, short_log, taken), (long, long_log, none_taken) = results
        assert (none_taken, taken) == (0, 18)
        assert [neutral(answer) for answer in short] == [neutral(answer) for answer in long]
        assert [record.body for record in short_log] == [record.body for record in long_log]
        for one, other in zip(short_log, long_log, strict=True):
            assert one[:7] == other[:7]
            if ID.encode() in one.properties:
                assert one.properties == other.properties

    run(compare())


def test_an_answer_of_the_short_way_is_a_whole_frame(tmp_path: Path) -> None:
    async def look() -> None:
        async with OneBroker(tmp_path) as broker:
            await broker.send("orders")
            shortcut = broker.broker._server.turn.shortcut
            assert shortcut is not None
            for encoding in Serialization:
                request = Command(
                    code=RequestCode.SEND_MESSAGE_V2,
                    opaque=5,
                    ext_fields={**FIELDS, "i": TEXTS[0]},
                    body=b"b",
                    serialization=encoding,
                )
                decoder = FrameDecoder()
                decoder.feed(encode_command(request))
                frame = decoder.next_frame()
                assert frame is not None
                connection = await broker.connect()
                connection.frames = [frame]
                shortcut([connection])
                assert connection.position == 1
                (answer,) = connection.answers
                connection.answers.clear()
                decoder.feed(bytes(answer))
                whole = decoder.next_frame()
                assert whole is not None
                assert decoder.buffered_bytes == 0
                command = decode_command(whole)
                assert (command.code, command.opaque, command.flag) == (0, 5, 1)
                assert command.serialization is encoding
                assert encode_command(command) == answer or encoding is Serialization.JSON

    run(look())


@pytest.mark.parametrize("flush", list(FlushMode))
def test_messages_of_many_producers_are_stored_together_and_answered_each_to_its_own(
    tmp_path: Path, flush: FlushMode
) -> None:
    producers, each = 5, 4

    async def scenario() -> None:
        async with OneBroker(tmp_path, None, small_files(tmp_path, flush_mode=flush)) as broker:
            await broker.send("orders")
            await broker.send("bills")
            turn = broker.broker._server.turn
            shortcut = turn.shortcut
            assert shortcut is not None
            crowds = []

            def watched(askers: Sequence[Asker]) -> None:
                crowds.append(len(askers))
                shortcut(askers)

            turn.shortcut = watched
            connections = [await broker.connect() for _ in range(producers)]
            calls = [
                connection.call(
                    RequestCode.SEND_MESSAGE_V2,
                    # One in three is not plain: it asks for a delay.
                    {
                        **FIELDS,
                        "b": TOPICS[number],
                        "i": TEXTS[0] + ("" if (number + who) % 3 else "DELAY\x013\x02"),
                    },
                    b"%d of %d" % (number, who),
                    timeout_s=3,
                )
                for number in range(each)
                for who, connection in enumerate(connections)
            ]
            answers = await asyncio.gather(*calls)
            assert max(crowds) == producers - 1  # the first was alone when it came
            store = broker.broker._store
            assert store is not None
            for at, answer in enumerate(answers):
                assert answer.code == 0
                offset = decode_message_id((answer.ext_fields or {})["msgId"]).physical_offset
                view = store.log.view(offset, store.log.max_offset - offset)
                assert view is not None
                record = decode_record(view)
                assert record.body == b"%d of %d" % divmod(at, producers)
                assert str(record.queue_offset) == (answer.ext_fields or {})["queueOffset"]

    run(scenario())
