"""Single requests to brokers and name servers: typed header in, checked answer out."""

from collections.abc import Collection, Sequence
from typing import Final, TypeVar

from downrange.client.answers import checked_route
from downrange.client.errors import BrokerRefusal, NoRouteCause, NoRouteError, RocketMQError
from downrange.client.name_servers import NameServers
from downrange.client.peers import Peers
from downrange.protocol.bodies.json_body import decode_body
from downrange.protocol.bodies.route import TopicRoute
from downrange.protocol.command import Command
from downrange.protocol.errors import ProtocolError
from downrange.protocol.headers.fields import Header, decode_header, encode_header
from downrange.protocol.headers.topic import GetRouteRequest
from downrange.protocol.request_codes import RequestCode
from downrange.protocol.response_codes import ResponseCode
from downrange.protocol.route_limits import RouteLimits

_SUCCESS: Final = frozenset({int(ResponseCode.SUCCESS)})
B = TypeVar("B")
H = TypeVar("H", bound=Header)


class Requests:
    """Asks over the connections of a session. Every error is a `RocketMQError`."""

    def __init__(self, peers: Peers, name_servers: NameServers, *, timeout_s: float) -> None:
        self._peers = peers
        self._name_servers = name_servers
        self._timeout_s = timeout_s

    @property
    def name_servers(self) -> tuple[str, ...]:
        """The addresses of all name servers."""
        return self._name_servers.addresses

    def only_name_servers(self, addresses: Sequence[str]) -> None:
        """Ask none but these from now on."""
        self._name_servers.update(addresses)

    async def ask(
        self,
        address: str,
        code: int,
        header: Header | None = None,
        body: bytes | None = None,
        *,
        also: Collection[int] = (),
        timeout_s: float | None = None,
    ) -> Command:
        """The answer of a server; a `BrokerRefusal` unless it is a success or one of `also`."""
        answer = await self._peers.call(
            address, code, _fields(header), body, timeout_s=timeout_s or self._timeout_s
        )
        return _checked(answer, f"broker {address}", also)

    async def ask_name_server(
        self, code: int, header: Header | None = None, *, also: Collection[int] = ()
    ) -> Command:
        """The answer of the first name server that gives one."""
        answer = await self._name_servers.ask(code, _fields(header), timeout_s=self._timeout_s)
        return _checked(answer, "name server", also)

    async def tell_name_servers(self, code: int, header: Header) -> None:
        """Have every name server do something; they do not tell each other."""
        for address in self._name_servers.addresses:
            answer = await self._peers.call(
                address, code, _fields(header), timeout_s=self._timeout_s
            )
            _checked(answer, f"name server {address}", ())

    async def route(self, topic: str) -> TopicRoute:
        """Where a topic is; `NoRouteError` if the name servers do not know it."""
        answer = await self.ask_name_server(
            RequestCode.GET_ROUTEINFO_BY_TOPIC,
            GetRouteRequest(topic=topic, accept_standard_json_only=True),
            also=(ResponseCode.TOPIC_NOT_EXIST,),
        )
        if answer.code == ResponseCode.TOPIC_NOT_EXIST or not answer.body:
            raise NoRouteError(topic, NoRouteCause.TOPIC_UNKNOWN)
        return checked_route(topic, answer.body, RouteLimits())


def read_body(body_type: type[B], answer: Command) -> B:
    """The body of an answer; nonsense in it is a `RocketMQError`."""
    try:
        return decode_body(body_type, answer.body)
    except ProtocolError as error:
        raise RocketMQError(f"the answer cannot be read: {error}") from error


def read_header(header_type: type[H], answer: Command) -> H:
    """The header of an answer; nonsense in it is a `RocketMQError`."""
    try:
        return decode_header(header_type, answer.ext_fields)
    except ProtocolError as error:
        raise RocketMQError(f"the answer cannot be read: {error}") from error


def _fields(header: Header | None) -> dict[str, str]:
    return {} if header is None else encode_header(header)


def _checked(answer: Command, who: str, also: Collection[int]) -> Command:
    if answer.code not in _SUCCESS and answer.code not in also:
        raise BrokerRefusal(answer.code, answer.remark or "", who)
    return answer
