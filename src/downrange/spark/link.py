"""One blocking connection to a name server or broker, for processes that do one thing at a time.

A task of Spark reads one queue and decodes what it has read, all in one thread; an event loop would
add copies of every byte and nothing else. Requests may be sent before earlier ones are answered,
which is how the next pull is under way while the last one is decoded. A large body is received into
memory of its own, straight from the socket.
"""

import contextlib
import socket
import time
from collections.abc import Callable, Sequence
from struct import Struct
from typing import Final

import numpy as np

from downrange.client.acl_signature import Credentials
from downrange.client.errors import BrokerUnreachableError, ClientTimeoutError, RocketMQError
from downrange.client.tls import TlsSettings
from downrange.protocol.command import Command, request
from downrange.protocol.command_codec import decode_command, encode_command
from downrange.protocol.errors import ProtocolError, RemoteProtocolError
from downrange.protocol.frame import HEADER_BYTES_MAX, Frame
from downrange.protocol.hosts import parse_address
from downrange.protocol.response_codes import ResponseCode

# Beyond what any broker is told to send; a peer that claims more is no RocketMQ.
FRAME_BYTES_MAX: Final = 256 * 1024 * 1024
# The kernel takes the next answer in while the last one is decoded, up to this.
RECEIVE_BUFFER_BYTES: Final = 4 * 1024 * 1024
_READ_BYTES: Final = 64 * 1024
_PREFIX: Final = Struct(">iI")
_WORD_BYTES: Final = 4

Request = tuple[int, dict[str, str]]


class Link:
    """A connection that belongs to one thread. Every error that leaves here is a `RocketMQError`.

    After an error it is of no use any more: close it and make another one.
    """

    def __init__(
        self,
        address: str,
        *,
        timeout_s: float,
        credentials: Credentials | None = None,
        tls: TlsSettings | None = None,
        monotonic_s: Callable[[], float] = time.monotonic,
    ) -> None:
        self.address = address
        self._timeout_s = timeout_s
        self._credentials = credentials
        self._monotonic_s = monotonic_s
        self._opaque = 0
        self._buffer = bytearray(_READ_BYTES)
        self._begin = self._end = 0  # what of the buffer is not looked at yet
        self._early: dict[int, tuple[Command, memoryview]] = {}
        self._body_bytes = 0
        self._deadline_s = monotonic_s() + timeout_s
        try:
            self._socket = self._connected(tls)
        except TimeoutError:
            raise BrokerUnreachableError(
                f"{address} did not accept a connection in {timeout_s:g} s"
            ) from None
        except (OSError, ProtocolError) as error:
            raise BrokerUnreachableError(f"cannot connect to {address}: {error}") from error

    def _connected(self, tls: TlsSettings | None) -> socket.socket:
        host, port = parse_address(self.address)
        plain = socket.create_connection((host, port), timeout=self._timeout_s)
        try:
            plain.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            plain.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, RECEIVE_BUFFER_BYTES)
            if tls is None:
                return plain
            context = tls.context()
            return context.wrap_socket(plain, server_hostname=tls.server_name or host)
        except TimeoutError:
            plain.close()
            raise
        except OSError as error:
            plain.close()
            raise (error if tls is None else tls.explained(host, port, error)) from error
        except BaseException:
            plain.close()
            raise

    def close(self) -> None:
        """Close the connection; may be called again."""
        with contextlib.suppress(OSError):
            self._socket.close()

    # --- asking ----------------------------------------------------------------------------

    def ask(self, code: int, fields: dict[str, str]) -> Command:
        """Ask and wait for the answer."""
        return self.ask_all([(code, fields)])[0]

    def ask_all(self, requests: Sequence[Request]) -> list[Command]:
        """Ask many things at once; the answers in the order of the requests."""
        opaques = [self.send(code, fields) for code, fields in requests]
        return [self._answer(opaque) for opaque in opaques]

    def send(self, code: int, fields: dict[str, str]) -> int:
        """Send a request; the number under which its answer comes."""
        self._deadline_s = self._monotonic_s() + self._timeout_s
        self._opaque += 1
        if self._credentials is not None:
            fields = self._credentials.sign(fields, None)
        frame = encode_command(request(code, opaque=self._opaque, ext_fields=fields))
        try:
            self._socket.settimeout(self._left_s())
            self._socket.sendall(frame)
        except OSError as error:
            raise self._lost(error) from error
        return self._opaque

    def receive_head(self, opaque: int) -> Command:
        """The answer without its body, which `receive_body` must take before anything else.

        Its time begins here: between sending and receiving, a task may wait for Spark.
        """
        self._deadline_s = self._monotonic_s() + self._timeout_s
        while True:
            command = self._next_head()
            if command.is_response and command.opaque == opaque:
                if command.code == ResponseCode.GO_AWAY:
                    raise BrokerUnreachableError(f"{self.address} is shutting down")
                return command
            # A request of the peer, or the answer to another one of ours.
            body = self.receive_body()
            if command.is_response:
                self._early[command.opaque] = (command, body)

    def receive_body(self) -> memoryview:
        """The body that belongs to the last head."""
        count, self._body_bytes = self._body_bytes, 0
        body = np.empty(count, np.uint8).data
        known = min(count, self._end - self._begin)
        body[:known] = memoryview(self._buffer)[self._begin : self._begin + known]
        self._begin += known
        while known < count:
            known += self._receive_into(body[known:])
        return body

    # --- inside ----------------------------------------------------------------------------

    def _answer(self, opaque: int) -> Command:
        if opaque in self._early:
            command, body = self._early.pop(opaque)
        else:
            command = self.receive_head(opaque)
            body = self.receive_body()
        frame_body = bytes(body) if len(body) else None
        return Command(
            code=command.code,
            opaque=opaque,
            flag=command.flag,
            remark=command.remark,
            ext_fields=command.ext_fields,
            body=frame_body,
        )

    def _next_head(self) -> Command:
        self._fill(_PREFIX.size)
        length, word = _PREFIX.unpack_from(self._buffer, self._begin)
        header_bytes = word & HEADER_BYTES_MAX
        if not header_bytes + _WORD_BYTES <= length <= FRAME_BYTES_MAX:
            raise RocketMQError(
                f"{self.address} sends no frame of RocketMQ (length {length}, header "
                f"{header_bytes}); is this the port of a name server or broker, and TLS the same "
                f"on both sides?"
            )
        self._begin += _PREFIX.size
        self._fill(header_bytes)
        header = bytes(self._buffer[self._begin : self._begin + header_bytes])
        self._begin += header_bytes
        self._body_bytes = length - _WORD_BYTES - header_bytes
        try:
            return decode_command(Frame(word >> 24, header, None))
        except RemoteProtocolError as error:
            raise RocketMQError(f"answer of {self.address}: {error}") from error

    def _fill(self, count: int) -> None:
        """Have so many bytes in the buffer."""
        if self._end - self._begin >= count:
            return
        rest = bytes(self._buffer[self._begin : self._end])
        if count > len(self._buffer):
            self._buffer = bytearray(count)
        self._buffer[: len(rest)] = rest
        self._begin, self._end = 0, len(rest)
        view = memoryview(self._buffer)
        while self._end < count:
            self._end += self._receive_into(view[self._end :])

    def _receive_into(self, view: memoryview) -> int:
        try:
            self._socket.settimeout(self._left_s())
            count = self._socket.recv_into(view)
        except OSError as error:
            raise self._lost(error) from error
        if not count:
            raise BrokerUnreachableError(f"{self.address} closed the connection", is_connected=True)
        return count

    def _left_s(self) -> float:
        left_s = self._deadline_s - self._monotonic_s()
        if left_s <= 0:
            raise TimeoutError
        return left_s

    def _lost(self, error: OSError) -> RocketMQError:
        if isinstance(error, TimeoutError):
            return ClientTimeoutError(f"{self.address} did not answer in {self._timeout_s:g} s")
        return BrokerUnreachableError(
            f"the connection to {self.address} broke: {error}", is_connected=True
        )
