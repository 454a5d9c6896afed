"""A peer on the loopback address that answers what a test tells it to."""

import contextlib
import socket
import ssl
import threading
from collections.abc import Callable
from typing import Self

from downrange.protocol.bodies.json_body import encode_body
from downrange.protocol.bodies.route import BrokerData, QueueData, TopicRoute
from downrange.protocol.command import Command, response
from downrange.protocol.command_codec import decode_command, encode_command
from downrange.protocol.frame import FrameDecoder
from downrange.protocol.headers.fields import decode_header, encode_header
from downrange.protocol.headers.pull import PullRequest, PullResponse
from downrange.protocol.hosts import encode_host
from downrange.protocol.record import Record, encode_record
from downrange.protocol.request_codes import RequestCode

HOST = encode_host("127.0.0.1", 10911)
# What a script gives: answers to write, or None to close the connection.
Answer = list[Command] | None
Script = Callable[[Command], Answer]


class ScriptedServer:
    """Name server and broker in one; every request goes to the script first.

    A script that returns no answer at all leaves the request to the server's own answers.
    """

    def __init__(self, script: Script, tls: ssl.SSLContext | None = None) -> None:
        self._script = script
        self._tls = tls
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.address = f"127.0.0.1:{self._listener.getsockname()[1]}"
        self.connections = 0
        self.requests: list[Command] = []
        self._open: list[socket.socket] = []
        self._thread = threading.Thread(target=self._accept, daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        for connection in self._open:
            connection.close()
        self._thread.join(10)

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                connection, _ = self._listener.accept()
                self.connections += 1
                self._open.append(connection)
                threading.Thread(target=self._serve, args=(connection,), daemon=True).start()

    def _serve(self, connection: socket.socket) -> None:
        decoder = FrameDecoder()
        with contextlib.suppress(OSError):
            if self._tls is not None:
                connection = self._tls.wrap_socket(connection, server_side=True)
                self._open.append(connection)
            while data := connection.recv(65_536):
                decoder.feed(data)
                while (frame := decoder.next_frame()) is not None:
                    command = decode_command(frame)
                    self.requests.append(command)
                    answers = self._script(command)
                    if answers is None:
                        connection.close()
                        return
                    for answer in answers or self._own(command):
                        connection.sendall(encode_command(answer))

    def _own(self, command: Command) -> list[Command]:
        if command.code == RequestCode.GET_ROUTEINFO_BY_TOPIC:
            route = TopicRoute(
                queue_datas=(
                    QueueData(broker_name="b", read_queue_nums=2, write_queue_nums=2, perm=6),
                ),
                broker_datas=(BrokerData(broker_name="b", broker_addrs={0: self.address}),),
            )
            return [response(command, 0, body=encode_body(route))]
        return []


def pulled(command: Command) -> PullRequest:
    """What a pull asks for."""
    return decode_header(PullRequest, command.ext_fields)


def pull_answer(
    command: Command,
    following: int,
    *,
    code: int = 0,
    low: int = 0,
    high: int = 100,
    count: int = 0,
) -> Command:
    """The answer to a pull: `count` records from its offset on."""
    start = pulled(command).queue_offset
    body = b"".join(a_record(start + number) for number in range(count))
    header = PullResponse(
        suggest_which_broker_id=0, next_begin_offset=following, min_offset=low, max_offset=high
    )
    return response(command, code, ext_fields=encode_header(header), body=body or None)


def a_record(queue_offset: int) -> bytes:
    """A message whose body is its offset."""
    return encode_record(
        Record(
            0, 0, queue_offset, queue_offset * 100, 0, 1, HOST, 2, HOST, 0, 0,
            b"%d" % queue_offset, b"t", b"",
        )
    )  # fmt: skip
