"""A relay between RocketMQ processes that keeps every frame it passes on, in order."""

import base64
import contextlib
import itertools
import json
import socket
import struct
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import partial
from typing import Self

READ_BYTES = 64 * 1024
JOIN_SECONDS_MAX = 10.0
_LENGTH = struct.Struct(">i")


@dataclass(frozen=True, slots=True)
class TappedFrame:
    """One frame, its length field included, and who sent it to whom.

    `session` is what the recorder was told was going on when the connection was made.
    """

    session: str
    link: str
    connection: int
    sender: str
    frame: bytes

    def json_line(self) -> str:
        """One line of a frames file."""
        return json.dumps(
            {
                "link": self.link,
                "connection": self.connection,
                "sender": self.sender,
                "frame": base64.b64encode(self.frame).decode("ascii"),
            }
        )


@dataclass(slots=True)
class Recorder:
    """Collects the frames of all taps; taps may add to it at the same time."""

    session: str = ""
    frames: list[TappedFrame] = field(default_factory=list[TappedFrame])
    connections: Iterator[int] = field(default_factory=lambda: itertools.count(1))


class Tap:
    """Listens on one address and relays each connection to another; lives as long as its block.

    One thread accepts, two threads per connection copy; all end when the sockets are closed.
    """

    def __init__(
        self, recorder: Recorder, link: str, listen: tuple[str, int], target: tuple[str, int]
    ) -> None:
        self._recorder = recorder
        self._link = link
        self._target = target
        self._sockets: list[socket.socket] = []
        self._threads: list[threading.Thread] = []
        self._listener = socket.create_server(listen)

    def __enter__(self) -> Self:
        self._start(self._accept)
        return self

    def __exit__(self, *_exception: object) -> None:
        for sock in [self._listener, *self._sockets]:
            with contextlib.suppress(OSError):
                sock.shutdown(socket.SHUT_RDWR)
            sock.close()
        for thread in self._threads:
            thread.join(JOIN_SECONDS_MAX)

    def _start(self, work: Callable[[], None]) -> None:
        thread = threading.Thread(target=work, name=f"tap {self._link}", daemon=True)
        self._threads.append(thread)
        thread.start()

    def _accept(self) -> None:
        while True:
            try:
                inner, _ = self._listener.accept()
                outer = socket.create_connection(self._target)
            except OSError:
                return
            self._sockets += [inner, outer]
            session, number = self._recorder.session, next(self._recorder.connections)
            self._start(partial(self._relay, inner, outer, (session, number, "client")))
            self._start(partial(self._relay, outer, inner, (session, number, "server")))

    def _relay(
        self, source: socket.socket, sink: socket.socket, origin: tuple[str, int, str]
    ) -> None:
        session, number, sender = origin
        pending = bytearray()
        with contextlib.suppress(OSError):
            while data := source.recv(READ_BYTES):
                pending += data
                # Kept before it is passed on, so that a request stands before its answer.
                for frame in _take_frames(pending):
                    tapped = TappedFrame(session, self._link, number, sender, frame)
                    self._recorder.frames.append(tapped)
                sink.sendall(data)
        for sock in (source, sink):
            with contextlib.suppress(OSError):
                sock.shutdown(socket.SHUT_RDWR)


def _take_frames(pending: bytearray) -> Iterator[bytes]:
    while len(pending) >= _LENGTH.size:
        end = _LENGTH.size + _LENGTH.unpack_from(pending)[0]
        if len(pending) < end:
            return
        yield bytes(pending[:end])
        del pending[:end]
