"""Connections that are read in one turn of the event loop are served, then written, together."""

import asyncio
import logging
from collections.abc import Sequence

import pytest

from downrange.protocol.command import Command, request, response
from downrange.protocol.command_codec import decode_command, encode_command
from downrange.protocol.frame import Frame, FrameDecoder
from downrange.remoting.connection import Answer, Connection
from downrange.remoting.turn import FRAMES_TOGETHER_MAX, READ_BYTES_MAX, Asker, Turn
from downrange.testing.virtual_time import run

ECHO = 1001


class Diary:
    """What happened, in order."""

    def __init__(self) -> None:
        self.lines: list[str] = []

    def take(self) -> list[str]:
        lines, self.lines = self.lines, []
        return lines


class Peer:
    """A connection that writes down what it is asked to do."""

    def __init__(self, name: str, diary: Diary, frames: int = 1) -> None:
        self.name = name
        self._diary = diary
        self.frames = [Frame(0, b"", None)] * frames
        self.position = 0
        self.answers: list[bytes | memoryview] = []
        self.host = bytes(8)
        self.address = name

    def cut(self) -> int:
        return len(self.frames)

    def serve(self) -> None:
        self._diary.lines.append(f"serve {self.name}")

    def flush(self) -> None:
        self._diary.lines.append(f"flush {self.name}")

    def reply(self, answer: list[bytes | memoryview]) -> None:
        raise AssertionError(answer)


async def turn_of_the_loop() -> None:
    """Return when everything has run that was scheduled before."""
    future = asyncio.get_running_loop().create_future()
    asyncio.get_running_loop().call_soon(future.set_result, None)
    await future


async def busy_turn(diary: Diary) -> Turn:
    """A turn behind one with two reads."""
    turn = Turn()
    for name in "xy":
        turn.add(Peer(name, diary), 1)
    await turn_of_the_loop()
    diary.take()
    return turn


def test_one_that_is_alone_is_served_at_once() -> None:
    async def scenario() -> None:
        diary, turn = Diary(), Turn()
        for _ in range(3):
            turn.add(Peer("a", diary), 10)
            assert diary.take() == ["serve a", "flush a"]
            await turn_of_the_loop()
            assert not diary.take()

    run(scenario())


def test_others_of_the_first_turn_wait_for_its_end() -> None:
    async def scenario() -> None:
        diary, turn = Diary(), Turn()
        for name in "abc":
            turn.add(Peer(name, diary), 10)
        assert diary.take() == ["serve a", "flush a"]
        await turn_of_the_loop()
        assert diary.take() == ["serve b", "serve c", "flush b", "flush c"]

    run(scenario())


def test_while_several_are_busy_all_wait_for_the_end_of_the_turn() -> None:
    async def scenario() -> None:
        diary = Diary()
        turn = await busy_turn(diary)
        for name in "abc":
            turn.add(Peer(name, diary), 10)
        assert not diary.take()
        await turn_of_the_loop()
        assert diary.take() == ["serve a", "serve b", "serve c", "flush a", "flush b", "flush c"]

    run(scenario())


def test_after_a_quiet_turn_the_first_is_served_at_once_again() -> None:
    async def scenario() -> None:
        diary = Diary()
        turn = await busy_turn(diary)
        turn.add(Peer("a", diary), 10)
        assert not diary.take()
        await turn_of_the_loop()
        assert diary.take() == ["serve a", "flush a"]
        turn.add(Peer("a", diary), 10)
        assert diary.take() == ["serve a", "flush a"]

    run(scenario())


def test_the_first_of_many_answers_does_not_wait_for_the_last() -> None:
    async def scenario() -> None:
        diary = Diary()
        turn = await busy_turn(diary)
        for name in "abc":
            turn.add(Peer(name, diary, FRAMES_TOGETHER_MAX // 2), 10)
        await turn_of_the_loop()
        assert diary.take() == ["serve a", "serve b", "flush a", "flush b", "serve c", "flush c"]

    run(scenario())


def test_much_that_was_read_is_served_before_more_is_read() -> None:
    async def scenario() -> None:
        diary = Diary()
        turn = await busy_turn(diary)
        turn.add(Peer("a", diary), READ_BYTES_MAX)
        assert not diary.take()
        turn.add(Peer("b", diary), 1)
        assert diary.take() == ["serve a", "serve b", "flush a", "flush b"]
        turn.add(Peer("c", diary), 1)
        await turn_of_the_loop()
        assert diary.take() == ["serve c", "flush c"]

    run(scenario())


def test_those_that_wait_are_shown_to_the_shortcut_together_and_served_then() -> None:
    async def scenario() -> None:
        diary = Diary()
        turn = await busy_turn(diary)
        seen: list[int] = []
        turn.shortcut = lambda askers: seen.append(len(askers))
        turn.add(Peer("a", diary), 10)
        turn.add(Peer("half a frame", diary, 0), 10)
        turn.add(Peer("b", diary), 10)
        await turn_of_the_loop()
        assert seen == [2]
        half = ["serve half a frame", "flush half a frame"]
        assert diary.take() == [*half, "serve a", "serve b", "flush a", "flush b"]

    run(scenario())


def test_one_that_is_read_twice_in_a_turn_is_served_once() -> None:
    async def scenario() -> None:
        diary = Diary()
        turn = await busy_turn(diary)
        seen: list[int] = []
        turn.shortcut = lambda askers: seen.append(len(askers))
        peer = Peer("a", diary)
        for _ in range(3):
            turn.add(peer, 10)
        await turn_of_the_loop()
        assert seen == [1]
        assert diary.take() == ["serve a", "flush a"]

    run(scenario())


def test_the_end_is_told_when_all_are_answered_and_nobody_else_was_read() -> None:
    async def scenario() -> None:
        diary = Diary()
        turn = await busy_turn(diary)
        turn.on_end = lambda: diary.lines.append("end")
        for name in "ab":
            turn.add(Peer(name, diary), 10)
        await turn_of_the_loop()
        assert diary.take() == ["serve a", "serve b", "flush a", "flush b", "end"]
        turn.add(Peer("a", diary), 10)  # nobody waits behind it
        await turn_of_the_loop()
        turn.add(Peer("a", diary), 10)
        await turn_of_the_loop()
        assert diary.take() == ["serve a", "flush a", "end", "serve a", "flush a"]

    run(scenario())


class Wire(asyncio.Transport):
    """Takes what is written."""

    def __init__(self) -> None:
        super().__init__()
        self.written: list[bytes] = []
        self.ended = ""

    def write(self, data: bytes | bytearray | memoryview) -> None:
        self.written.append(bytes(data))

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        pass

    def pause_reading(self) -> None:
        pass

    def is_closing(self) -> bool:
        return bool(self.ended)

    def close(self) -> None:
        self.ended = self.ended or "closed"

    def abort(self) -> None:
        self.ended = "aborted"


def echo(command: Command, _: Connection) -> Answer:
    return response(command, 0)


def echo_frame(opaque: int) -> bytes:
    return encode_command(request(ECHO, opaque=opaque))


async def due_connections(count: int) -> tuple[list[Connection], list[Wire]]:
    """Connections that were read and are not served yet."""
    turn = await busy_turn(Diary())
    connections, wires = [], []
    for number in range(count):
        connection, wire = Connection({ECHO: echo}, turn=turn), Wire()
        connection.connection_made(wire)
        connection.data_received(echo_frame(number))
        assert not wire.written
        connections.append(connection)
        wires.append(wire)
    return connections, wires


def test_answers_of_all_connections_come_with_the_end_of_the_turn() -> None:
    async def scenario() -> None:
        _, wires = await due_connections(3)
        await turn_of_the_loop()
        assert [len(wire.written) for wire in wires] == [1, 1, 1]

    run(scenario())


def test_what_was_read_is_answered_before_a_connection_is_closed() -> None:
    async def scenario() -> None:
        connections, wires = await due_connections(2)
        connections[0].close()
        assert len(wires[0].written) == 1
        assert wires[0].ended == "closed"
        connections[1].stop_reading()
        await turn_of_the_loop()
        assert [len(wire.written) for wire in wires] == [1, 1]

    run(scenario())


@pytest.mark.parametrize("commands", range(7))
@pytest.mark.parametrize("requests", [1, 3])
def test_a_handler_that_sends_commands_to_its_peer_is_answered_for(
    commands: int, requests: int
) -> None:
    def busy(command: Command, connection: Connection) -> Answer:
        for _ in range(commands):
            connection.send_one_way(ECHO)
        return response(command, 0)

    async def scenario() -> None:
        turn, wire = await busy_turn(Diary()), Wire()
        connection = Connection({ECHO: busy}, turn=turn)
        connection.connection_made(wire)
        connection.data_received(b"".join(map(echo_frame, range(1_000, 1_000 + requests))))
        await turn_of_the_loop()
        decoder = FrameDecoder()
        decoder.feed(b"".join(wire.written))
        seen = [decode_command(frame) for frame in decoder.next_frames(100)]
        assert len(seen) == requests * (commands + 1)
        answers = [command.opaque for command in seen if command.is_response]
        assert answers == list(range(1_000, 1_000 + requests))

    run(scenario())


def test_nonsense_of_one_does_not_harm_the_others_of_its_turn(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def scenario() -> None:
        connections, wires = await due_connections(3)
        connections[1].data_received(b"\xff" * 8)
        await turn_of_the_loop()
        assert [len(wire.written) for wire in wires] == [1, 1, 1]
        assert [wire.ended for wire in wires] == ["", "closed", ""]

    with caplog.at_level(logging.WARNING):
        run(scenario())
    assert "nonsense" in caplog.text


def test_a_failure_with_one_does_not_harm_the_others_of_its_turn(
    caplog: pytest.LogCaptureFixture,
) -> None:
    def broken(askers: Sequence[Asker]) -> None:
        if any(b'"opaque":1,' in frame.header for asker in askers for frame in asker.frames):
            raise RuntimeError("out of order")

    async def scenario() -> None:
        turn = await busy_turn(Diary())
        wires = [Wire() for _ in range(3)]
        turn.shortcut = broken
        for number, wire in enumerate(wires):
            connection = Connection({ECHO: echo}, turn=turn)
            connection.connection_made(wire)
            connection.data_received(echo_frame(number))
        await turn_of_the_loop()
        assert [len(wire.written) for wire in wires] == [1, 0, 1]
        assert [wire.ended for wire in wires] == ["", "aborted", ""]

    run(scenario())
    assert "out of order" in caplog.text
