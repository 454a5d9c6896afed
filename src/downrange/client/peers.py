"""Requests to brokers and name servers by address: signed, hooked, errors are the client's own."""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from typing import Final

from downrange.client.acl_signature import Credentials
from downrange.client.errors import (
    BrokerUnreachableError,
    ClientTimeoutError,
    RocketMQError,
    TooMuchInFlightError,
)
from downrange.client.hooks import RpcHook
from downrange.protocol.command import Command
from downrange.protocol.errors import ProtocolError
from downrange.protocol.hosts import format_address, parse_address
from downrange.protocol.response_codes import ResponseCode
from downrange.remoting.client import RemotingClient
from downrange.remoting.connection import Connection, Handler
from downrange.remoting.errors import (
    ConnectError,
    RemotingError,
    RequestTimeoutError,
    TooManyRequestsError,
)
from downrange.remoting.network import Network

VIP_PORT_DISTANCE: Final = 2
CLOSE_TIMEOUT_S: Final = 1.0
RETIRED_S: Final = 30.0  # what waits on a connection that is given up may end until then


class Peers:
    """The connections of one session. Every error that leaves here is a `RocketMQError`."""

    def __init__(
        self,
        network: Network,
        handlers: Mapping[int, Handler],
        *,
        connect_timeout_s: float,
        credentials: Credentials | None = None,
        hooks: Sequence[RpcHook] = (),
        on_open: Callable[[str, Connection], None] | None = None,
        on_close: Callable[[str, Connection], None] | None = None,
    ) -> None:
        self._client = RemotingClient(
            network,
            handlers,
            connect_timeout_s=connect_timeout_s,
            on_open=on_open,
            on_close=on_close,
        )
        self._credentials = credentials
        self.hooks: list[RpcHook] = list(hooks)

    @property
    def is_plain(self) -> bool:
        """Whether nothing wants to see or sign requests, so that they may be built in parts."""
        return self._credentials is None and not self.hooks

    async def call(
        self,
        address: str,
        code: int,
        fields: dict[str, str] | None = None,
        body: bytes | None = None,
        *,
        timeout_s: float,
    ) -> Command:
        """Ask and wait for the answer; connecting counts against the time."""
        fields = self.prepared(address, code, fields, body)
        loop = asyncio.get_running_loop()
        deadline_s = loop.time() + timeout_s
        try:
            response = await self._client.call(address, code, fields, body, timeout_s=timeout_s)
            left_s = deadline_s - loop.time()
            if response.code == ResponseCode.GO_AWAY and left_s > 0:
                self.retire(address)
                response = await self._client.call(address, code, fields, body, timeout_s=left_s)
        except (RemotingError, ProtocolError) as error:
            raise translated(error) from error
        for hook in self.hooks:
            hook.after_response(address, code, response)
        return response

    async def one_way(
        self,
        address: str,
        code: int,
        fields: dict[str, str] | None = None,
        body: bytes | None = None,
        *,
        timeout_s: float,
    ) -> None:
        """Send what nobody answers; returns when it is written."""
        fields = self.prepared(address, code, fields, body)
        connection = await self.connect(address, timeout_s)
        try:
            connection.send_one_way(code, fields, body)
        except (RemotingError, ProtocolError) as error:
            raise translated(error) from error

    async def connect(self, address: str, timeout_s: float | None = None) -> Connection:
        """The connection to a peer."""
        try:
            return await self._client.connect(address, timeout_s)
        except (RemotingError, ProtocolError) as error:
            raise translated(error) from error

    def connected(self, address: str) -> Connection | None:
        """The connection to a peer if there is one now."""
        return self._client.connected(address)

    def retire(self, address: str) -> None:
        """The peer wants to be left (GO_AWAY): the next request gets a new connection."""
        self._client.retire(address, RETIRED_S)

    def close(self, address: str | None = None) -> None:
        """Close the connection to one peer, or to all."""
        self._client.close(address)

    async def stop(self) -> None:
        """Close all connections and wait until they are closed."""
        await self._client.stop(CLOSE_TIMEOUT_S)

    def prepared(
        self, address: str, code: int, fields: dict[str, str] | None, body: bytes | None
    ) -> dict[str, str] | None:
        """The fields as hooks and signature want them."""
        for hook in self.hooks:
            fields = hook.before_request(address, code, fields, body)
        if self._credentials is not None:
            fields = self._credentials.sign(fields, body)
        return fields


def translated(error: RemotingError | ProtocolError) -> RocketMQError:
    """What an error of the connection means to a user of the client."""
    if isinstance(error, RequestTimeoutError):
        return ClientTimeoutError(str(error))
    if isinstance(error, TooManyRequestsError):
        return TooMuchInFlightError(str(error))
    if isinstance(error, ConnectError):
        return BrokerUnreachableError(str(error))
    if isinstance(error, RemotingError):
        return BrokerUnreachableError(str(error), is_connected=True)
    return RocketMQError(str(error))


def vip_address(address: str) -> str:
    """The second port of a broker, which serves producers."""
    host, port = parse_address(address)
    return format_address(host, port - VIP_PORT_DISTANCE)
