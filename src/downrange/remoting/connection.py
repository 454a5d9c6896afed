"""One connection, both directions: cuts frames, answers requests, pairs replies.

Frames of one read are answered together, with few writes; those of a server's connections when all
of a turn of the loop have been read (`turn`). A handler returns its answer directly;
only one that has to wait returns a coroutine, which gets a task of its own.
"""

import asyncio
import logging
from collections.abc import Callable, Coroutine, Mapping
from typing import cast

from downrange.protocol.command import Command, request, response
from downrange.protocol.command_codec import decode_command, encode_command
from downrange.protocol.errors import RemoteProtocolError
from downrange.protocol.frame import FRAME_BYTES_MAX, Frame, FrameDecoder
from downrange.protocol.hosts import encode_host, format_address
from downrange.protocol.response_codes import ResponseCode
from downrange.remoting import answers
from downrange.remoting.answers import add_answer, answer_to_error
from downrange.remoting.errors import ConnectionLostError
from downrange.remoting.intake import Intake
from downrange.remoting.pending_calls import PendingCalls
from downrange.remoting.read_pauses import Pause, ReadPauses
from downrange.remoting.request_limits import RequestTooLargeError
from downrange.remoting.turn import Turn
from downrange.remoting.waiting_requests import WaitingRequests, subject_of

_log = logging.getLogger(__name__)

WRITE_BUFFER_BYTES_MAX = 8 * 1024 * 1024  # beyond it a reader is slow, and pulls wait
GATHERED_BYTES_MAX = 16 * 1024  # a larger command is written at once, with those before it
# A write costs more than a request, so requests and answers are gathered. But while one end gathers
# the other has nothing to do: beyond so many both work at the same time.
COMMANDS_TOGETHER_MAX = 4
ANSWERS_TOGETHER_MAX = 16
FRAMES_TOGETHER_MAX = ANSWERS_TOGETHER_MAX
# The same for answers of handlers, which may be large and have several parts.
ANSWER_PARTS_MAX = 128
ANSWER_PART_BYTES_MAX = 64 * 1024

# A handler that has to wait gives a coroutine, which gives its answer.
Answer = answers.Answer
Handler = Callable[[Command, "Connection"], Answer | Coroutine[None, None, Answer]]


class Connection(asyncio.Protocol):
    """The protocol of a transport. Lives on the event loop and belongs to it.

    `is_writable` is False while the peer does not read what was written; the end that was connected
    to, which has a `turn`, serves no request of such a peer until it has caught up. `on_open` and
    `on_close` are called once each.
    """

    def __init__(
        self,
        handlers: Mapping[int, Handler],
        *,
        on_open: Callable[["Connection"], None] | None = None,
        on_close: Callable[["Connection"], None] | None = None,
        frame_bytes_max: int = FRAME_BYTES_MAX,
        turn: Turn | None = None,
        intake: Intake | None = None,
    ) -> None:
        self._handlers = handlers
        self._on_open = on_open
        self._on_close = on_close
        self._decoder = FrameDecoder(frame_bytes_max)
        self._transport: asyncio.Transport | None = None
        self._loop = asyncio.get_running_loop()
        self._calls = PendingCalls(self._loop)
        self._waiting = WaitingRequests(self._loop, turn)
        # What `remoting.turn` says of them; the answers are those of this turn of the loop.
        self.answers: list[bytes | memoryview] = []
        self.frames: list[Frame] = []
        self.position = 0
        self._turn = turn
        self._is_accepted = turn is not None
        self._is_due = False  # read, and to be served when the turn is over
        self._intake = intake
        self._decode = decode_command if intake is None else intake.limits.decode
        self._limits_rate = intake is not None and intake.addresses.limits_bytes
        self._watch = turn.watch if turn is not None else None
        self._held_bytes = 0  # of an incomplete frame, as the budget knows
        self._pauses = ReadPauses()
        self.is_writable = True
        self.is_closed = False
        self.last_read_s = 0.0
        self.host = bytes(8)  # the peer's address as records carry it
        self.address = "?"
        self.ip = ""

    # --- what the transport calls ----------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Take the transport."""
        # uvloop's transports do what asyncio's do, and are not instances of its class.
        self._transport = cast("asyncio.Transport", transport)
        self._transport.set_write_buffer_limits(high=WRITE_BUFFER_BYTES_MAX)
        name = transport.get_extra_info("peername")
        if name:
            self.address = format_address(str(name[0]), int(name[1]))
            self.host = encode_host(str(name[0]), int(name[1]))
            self.ip = str(name[0])
        self.last_read_s = self._loop.time()
        if self._on_open is not None:
            self._on_open(self)

    def data_received(self, data: bytes) -> None:
        """Answer every whole frame that has arrived."""
        self.last_read_s = self._loop.time()
        self._decoder.feed(data)
        if self._limits_rate:
            self._pause_for_rate(len(data))
        if self._turn is not None:
            self._is_due = True
            self._turn.add(self, len(data))
        else:
            self.serve()
            self.flush()

    def cut(self) -> int:
        """Cut frames, if there are none; returns how many can be served now.

        None can while the peer does not read what was written to it.
        """
        if self._is_accepted and not self.is_writable:
            return 0
        if self.position == len(self.frames):
            self.position = 0
            self.frames = []
            if self._decoder.has_more:
                try:
                    self.frames = self._decoder.next_frames(FRAMES_TOGETHER_MAX)
                except RemoteProtocolError as error:
                    self._end_for(error)
                if self._held_bytes and self.frames and self._intake is not None:
                    self._held_bytes = 0
                    self._intake.budget.release(self)
        return len(self.frames) - self.position

    def serve(self) -> None:
        """Answer all that was read; what is not written at once waits for `flush`."""
        self._is_due = False
        shortcut = self._turn.shortcut if self._turn is not None else None
        answers = self.answers
        try:
            while self.cut():
                frames = self.frames
                while (position := self.position) < len(frames):
                    if shortcut is not None:
                        shortcut((self,))
                    if self.position > position:
                        if len(answers) < ANSWERS_TOGETHER_MAX:
                            continue
                    else:
                        self.position += 1
                        self._serve_frame(frames[position], answers)
                        if not answers or (
                            len(answers) < ANSWER_PARTS_MAX
                            and len(answers[-1]) < ANSWER_PART_BYTES_MAX
                        ):
                            continue
                    self.flush()
                    if self._is_accepted and not self.is_writable:
                        return
        except RemoteProtocolError as error:
            self._end_for(error)
        except Exception:  # noqa: BLE001 - the others of this turn are still to be served
            _log.exception("closing %s, which could not be served", self.address)
            self.abort()
        if self._held_bytes != self._decoder.held_bytes:
            self._note_held()

    def pause_writing(self) -> None:
        """The peer reads too slowly: read no more of its requests until it has caught up.

        Only the end that was connected to does so: if both did, each could wait for the other.
        """
        self.is_writable = False
        if self._is_accepted:
            self._pauses.add(Pause.UNREAD, self._transport)
            if self._intake is not None:
                self._intake.budget.note_unsent(self, self.unsent_bytes)

    def resume_writing(self) -> None:
        """The peer has caught up."""
        self.is_writable = True
        transport = self._transport
        if not self._is_accepted or transport is None or transport.is_closing():
            return
        self.last_read_s = self._loop.time()  # it lives
        self._pauses.remove(Pause.UNREAD, transport)
        if self._intake is not None:
            self._intake.budget.note_unsent(self, 0)
        if not self._pauses.is_stopped:
            self._loop.call_soon(self._go_on)

    def connection_lost(self, exc: Exception | None) -> None:
        """Tell everybody who waits."""
        self.is_closed = True
        self._calls.fail_all(self.address, exc)
        if self._intake is not None:
            self._intake.budget.forget(self)
        self._waiting.cancel()
        if self._on_close is not None:
            self._on_close(self)

    # --- what the rest of the program calls ------------------------------------------------

    async def call(
        self,
        code: int,
        ext_fields: dict[str, str] | None = None,
        body: bytes | None = None,
        *,
        timeout_s: float,
    ) -> Command:
        """Send a request and wait for its answer."""
        if self.is_closed:
            raise ConnectionLostError(f"{self.address} is not connected")
        opaque, future = self._calls.add(self.address)
        timer = self._loop.call_later(
            timeout_s, self._calls.expire, opaque, self.address, code, timeout_s
        )
        try:
            self.send(request(code, opaque=opaque, ext_fields=ext_fields, body=body))
            return await future
        finally:
            timer.cancel()
            self._calls.forget(opaque)

    def expect(self) -> tuple[int, asyncio.Future[Command]]:
        """A number for a request that the caller writes and times itself, and its answer to be.

        The caller must `forget` it in the end if no answer has come.
        """
        if self.is_closed:
            raise ConnectionLostError(f"{self.address} is not connected")
        return self._calls.add(self.address)

    def forget(self, opaque: int) -> None:
        """Wait for an answer no more."""
        self._calls.forget(opaque)

    def next_opaque(self) -> int:
        """A number for a request without an answer."""
        return self._calls.next_opaque()

    def send_one_way(
        self, code: int, ext_fields: dict[str, str] | None = None, body: bytes | None = None
    ) -> None:
        """Send a request that nobody answers."""
        opaque = self.next_opaque()
        self.send(request(code, opaque=opaque, ext_fields=ext_fields, body=body, one_way=True))

    def send(self, command: Command) -> None:
        """Write a command, with others of this turn; nothing happens if the connection is gone."""
        data = encode_command(command)
        if not self.answers:
            self._loop.call_soon(self.flush)
        self.answers.append(data)
        if len(data) > GATHERED_BYTES_MAX or len(self.answers) >= COMMANDS_TOGETHER_MAX:
            self.flush()

    def flush(self) -> None:
        """Write what was gathered."""
        # The list stays the same one: a handler that sends commands may be about to answer, too.
        if self.answers:
            unsent = self.answers.copy()
            self.answers.clear()
            self._write(unsent)

    def reply(self, answer: Answer) -> None:
        """Write the answer of a handler that had none at once."""
        if answer is not None:
            out: list[bytes | memoryview] = []
            add_answer(answer, out)
            self._write(out)

    def serve_with(self, handlers: Mapping[int, Handler]) -> None:
        """Answer requests otherwise from now on."""
        self._handlers = handlers

    def stop_reading(self) -> None:
        """Serve what was read, and read no more: the connection is about to be closed."""
        if self._is_due:
            self.serve()
        self._pauses.add(Pause.STOPPED, self._transport)

    def pause_receiving(self) -> None:
        """Read no more until `resume_receiving`: there is no memory for the rest of a request."""
        self._pauses.add(Pause.MEMORY, self._transport)

    def resume_receiving(self) -> None:
        """Read again."""
        self._pauses.remove(Pause.MEMORY, self._transport)

    @property
    def unsent_bytes(self) -> int:
        """Bytes that are held because the peer does not read its responses."""
        if self._transport is None or self.is_closed:
            return 0
        unserved = 0 if self.is_writable else self._decoder.buffered_bytes
        return self._transport.get_write_buffer_size() + unserved

    def close(self) -> None:
        """Answer what was read, write what is there and close."""
        if self._is_due:
            self.serve()
        self.flush()
        if self._transport is not None and not self._transport.is_closing():
            self._transport.close()

    def abort(self) -> None:
        """Close at once."""
        if self._transport is not None:
            self._transport.abort()

    # --- inside ----------------------------------------------------------------------------

    def _end_for(self, error: RemoteProtocolError) -> None:
        _log.warning("closing %s, which sent nonsense: %s", self.address, error)
        self._is_due = False
        self._calls.fail_all(self.address, error)
        self.close()

    def _go_on(self) -> None:
        """Serve what had been read before the peer fell behind."""
        if not self.is_closed:
            if self._watch is not None:
                self._watch.begin()
            self.serve()
            self.flush()

    def _pause_for_rate(self, count: int) -> None:
        assert self._intake is not None
        delay_s = self._intake.addresses.delay_s(self.ip, count)
        if delay_s:
            self._pauses.add(Pause.RATE, self._transport)
            self._loop.call_later(delay_s, self._pauses.remove, Pause.RATE, self._transport)

    def _note_held(self) -> None:
        """Tell the budget; what a peer holds that does not read is counted as unsent."""
        held_bytes = self._decoder.held_bytes
        if self._intake is None or self.is_closed or not self.is_writable:
            return
        self._held_bytes = held_bytes
        if held_bytes:
            self._intake.budget.note(self, held_bytes, self._decoder.missing_bytes)
        else:
            self._intake.budget.release(self)

    def _serve_frame(self, frame: Frame, out: list[bytes | memoryview]) -> None:
        try:
            command = self._decode(frame)
        except RequestTooLargeError as error:
            _log.info("connection %s: %s", self.address, error)
            if error.answer is not None:
                out.append(encode_command(error.answer))
            return
        if command.is_response:
            self._calls.resolve(command)
        else:
            self._serve(command, out)
        if self._watch is not None and self._watch.lap():
            size = len(frame.header) + len(frame.body or b"")
            self._watch.note(f"{subject_of(command)} of {self.address}, {size} bytes")

    def _serve(self, command: Command, out: list[bytes | memoryview]) -> None:
        handler = self._handlers.get(command.code)
        answer: Answer | Coroutine[None, None, Answer]
        if handler is None:
            answer = response(
                command,
                ResponseCode.REQUEST_CODE_NOT_SUPPORTED,
                remark=f" request type {command.code} not supported",
            )
        else:
            try:
                answer = handler(command, self)
            except Exception as error:  # noqa: BLE001 - one bad request must not end the others
                answer = answer_to_error(error, command)
        if answer is None:
            return
        if not isinstance(answer, (bytes, list, Command)):
            self._waiting.start(command, answer, self)
        elif not command.is_one_way:
            add_answer(answer, out)

    def _write(self, out: list[bytes | memoryview]) -> None:
        transport = self._transport
        if transport is None or transport.is_closing():
            return
        data = out[0] if len(out) == 1 else b"".join(out)
        if data:
            transport.write(data)
