"""One client towards a cluster: connections, routes, heartbeats; shared by producers and consumers.

    CREATE_JUST -> (START_FAILED ->) RUNNING -> SHUTDOWN_ALREADY

It belongs to one event loop of one process. After a fork the child must make its own: sockets that
two processes read are of no use to either.
"""

import asyncio
import logging
import random
from collections.abc import Callable, Coroutine, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Final

from downrange.client.broker_calls import BrokerCalls
from downrange.client.client_id import local_ip, process_id
from downrange.client.errors import ClientStateError, DuplicateGroupError, RocketMQError
from downrange.client.heartbeats import Heartbeats
from downrange.client.hooks import RpcHook
from downrange.client.name_servers import Fetcher, NameServers
from downrange.client.namespace import NamespaceV2Hook
from downrange.client.participant import Participant
from downrange.client.peers import Peers
from downrange.client.request_reply import ReplyTable
from downrange.client.routes import Routes
from downrange.client.settings import ClientSettings
from downrange.model.topics import MASTER_ID
from downrange.protocol.bodies.heartbeat import ConsumerGroup, ProducerGroup
from downrange.protocol.command import Command
from downrange.protocol.errors import ProtocolError
from downrange.protocol.hosts import encode_ip
from downrange.protocol.request_codes import RequestCode
from downrange.protocol.route_limits import RouteLimits
from downrange.protocol.unique_id import UniqueIdGenerator
from downrange.remoting.connection import Connection, Handler
from downrange.remoting.network import Network
from downrange.runtime.clock import Clock
from downrange.runtime.service import Supervisor

_log = logging.getLogger(__name__)

# Java's first delays: routes at once, heartbeats after a second, the rest later.
FIRST_ROUTES_S: Final = 0.01
FIRST_HEARTBEAT_S: Final = 1.0
FIRST_LOOKUP_S: Final = 10.0
FIRST_PERSIST_S: Final = 10.0
LEAVE_TIMEOUT_S: Final = 1.0  # a broker that does not answer will notice that we are gone


class ServiceState(StrEnum):
    """The life of a session, a producer or a consumer."""

    CREATE_JUST = "CREATE_JUST"
    START_FAILED = "START_FAILED"
    RUNNING = "RUNNING"
    SHUTDOWN_ALREADY = "SHUTDOWN_ALREADY"


@dataclass(frozen=True, slots=True)
class ClientSurroundings:
    """What a client stands in; a test brings its own."""

    network: Network
    clock: Clock
    chance: random.Random
    fetch: Fetcher | None = None
    process_id: Callable[[], int] = field(default=process_id)


class Session:
    """Owned by a `SessionTable`, or by whoever makes one; producers and consumers register."""

    def __init__(
        self,
        settings: ClientSettings,
        client_id: str,
        around: ClientSurroundings,
        *,
        hooks: Sequence[RpcHook] = (),
    ) -> None:
        self.settings = settings
        self.client_id = client_id
        self.clock = around.clock
        self.chance = around.chance
        self.state = ServiceState.CREATE_JUST
        self.supervisor = Supervisor(_only_logged)
        self._process_id_now = around.process_id
        self._process_id = around.process_id()
        self.loop = asyncio.get_running_loop()
        self._starting = asyncio.Lock()
        self.replies = ReplyTable(around.clock, body_bytes_max=settings.body_bytes_max)
        self._handlers: dict[int, Handler] = {
            RequestCode.NOTIFY_CONSUMER_IDS_CHANGED: self._on_ids_changed,
            RequestCode.PUSH_REPLY_MESSAGE_TO_CLIENT: self.replies.on_push,
        }
        self.peers = Peers(
            around.network,
            self._handlers,
            connect_timeout_s=settings.connect_timeout_s,
            credentials=settings.credentials,
            hooks=(*_own_hooks(settings), *hooks),
            on_open=self._on_open,
        )
        self.calls = BrokerCalls(self.peers, timeout_s=settings.api_timeout_s)
        self.name_servers = NameServers(
            self.peers,
            around.clock,
            around.chance,
            settings.name_server_list,
            lookup=settings.name_server_lookup,
            unit_name=settings.unit_name,
            fetch=around.fetch,
        )
        self.routes = Routes(
            self.name_servers,
            timeout_s=settings.api_timeout_s,
            on_change=self._on_route_changed,
            limits=RouteLimits(queues_max=settings.route_queues_max),
        )
        self._producers: dict[str, Participant] = {}
        self._consumers: dict[str, Participant] = {}
        self.heartbeats = Heartbeats(
            client_id,
            self.calls,
            self.routes,
            lambda: [*self._producers.values(), *self._consumers.values()],
            version_2=settings.heartbeat_v2,
        )
        self.unique_ids = UniqueIdGenerator(
            ip=_number_of(settings.client_ip),
            process_id=self._process_id,
            clock=around.clock,
            random=around.chance,
        )
        self._jobs_running: set[str] = set()

    # --- life ------------------------------------------------------------------------------

    async def start(self) -> None:
        """Find the name servers and begin the scheduled work; a second call does nothing."""
        async with self._starting:
            if self.state is ServiceState.RUNNING:
                return
            if self.state is not ServiceState.CREATE_JUST:
                raise ClientStateError(
                    f"session {self.client_id} is {self.state.value}; make a new one"
                )
            self.state = ServiceState.START_FAILED
            if not self.settings.name_server_list and self.name_servers.is_looked_up:
                await self.name_servers.look_up()
            self._schedule()
            self.state = ServiceState.RUNNING
            _log.info("client started client=%s", self.client_id)

    async def shutdown(self) -> None:
        """Leave the groups, close the connections; a second call does nothing."""
        if self.state is ServiceState.SHUTDOWN_ALREADY:
            return
        self.state = ServiceState.SHUTDOWN_ALREADY
        for participant in [*self._producers.values(), *self._consumers.values()]:
            await self.unregister(participant)
        await self.supervisor.stop()
        await self.peers.stop()
        _log.info("client shut down client=%s", self.client_id)

    def check_usable(self) -> None:
        """`ClientStateError` unless started, not shut down, and in the process that started it."""
        if self.state is not ServiceState.RUNNING:
            raise ClientStateError(f"the client is {self.state.value}, not RUNNING; start it first")
        if self._process_id_now() != self._process_id:
            raise ClientStateError(
                f"the client was started in process {self._process_id} and cannot be used after a "
                f"fork, in process {self._process_id_now()}; make and start one in the child"
            )

    # --- who takes part --------------------------------------------------------------------

    def register(self, participant: Participant) -> None:
        """Take a producer or consumer in; one for each group and kind."""
        data = participant.heartbeat()
        table, kind = self._table_of(data)
        if participant.group in table:
            raise DuplicateGroupError(
                f"{kind} group {participant.group!r} is in this client already; give the second "
                f"one another group, or another instance_name so that it gets a client of its own"
            )
        table[participant.group] = participant

    async def unregister(self, participant: Participant) -> None:
        """Let it go and tell the brokers; those that do not answer in a second are left alone."""
        data = participant.heartbeat()
        table, kind = self._table_of(data)
        if table.get(participant.group) is not participant:
            return
        del table[participant.group]
        addresses = [at for brokers in self.routes.brokers.values() for at in brokers.values()]
        connected = [at for at in addresses if self.peers.connected(at) is not None]
        group = participant.group
        await asyncio.gather(*(self._leave(at, kind, group) for at in connected))

    def producer(self, group: str) -> Participant | None:
        """The producer of a group."""
        return self._producers.get(group)

    def consumer(self, group: str) -> Participant | None:
        """The consumer of a group."""
        return self._consumers.get(group)

    @property
    def consumers(self) -> tuple[Participant, ...]:
        """All consumers."""
        return tuple(self._consumers.values())

    def serve(self, code: int, handler: Handler) -> None:
        """Answer a request of the brokers; the last handler of a code wins."""
        self._handlers[code] = handler

    def rebalance_soon(self) -> None:
        """Have every consumer share out its queues anew."""
        for consumer in self.consumers:
            consumer.rebalance_soon()

    # --- brokers ---------------------------------------------------------------------------

    async def refresh_routes(self) -> None:
        """Ask for all topics that somebody here needs."""
        topics = {
            topic
            for participant in [*self._producers.values(), *self._consumers.values()]
            for topic in participant.topics()
        }
        await self.routes.refresh_all(sorted(topics))

    async def heartbeat_to_all(self) -> None:
        """Forget brokers that are gone, greet the others."""
        self.routes.drop_offline()
        await self.heartbeats.send_to_all()

    async def persist_offsets(self) -> None:
        """Have every consumer save how far it has come."""
        for consumer in self.consumers:
            try:
                await consumer.persist_offsets()
            except RocketMQError as error:
                _log.warning("offsets not saved group=%s: %s", consumer.group, error)

    # --- inside ----------------------------------------------------------------------------

    def _table_of(self, data: ProducerGroup | ConsumerGroup) -> tuple[dict[str, Participant], str]:
        if isinstance(data, ProducerGroup):
            return self._producers, "producer"
        return self._consumers, "consumer"

    def _schedule(self) -> None:
        settings = self.settings
        self._every("routes", FIRST_ROUTES_S, settings.poll_name_server_interval_s,
                    self.refresh_routes)  # fmt: skip
        self._every("heartbeats", FIRST_HEARTBEAT_S, settings.heartbeat_interval_s,
                    self.heartbeat_to_all)  # fmt: skip
        self._every("offsets", FIRST_PERSIST_S, settings.persist_offsets_interval_s,
                    self.persist_offsets)  # fmt: skip
        if not settings.name_server_list and self.name_servers.is_looked_up:
            interval_s = settings.name_server_lookup_interval_s
            self._every("name servers", FIRST_LOOKUP_S, interval_s, self.name_servers.look_up)

    def _every(
        self,
        name: str,
        first_s: float,
        interval_s: float,
        job: Callable[[], Coroutine[None, None, None]],
    ) -> None:
        def begin() -> None:
            # One that is slow is not overtaken by itself.
            if name not in self._jobs_running:
                self._jobs_running.add(name)
                self.supervisor.spawn(name, self._run(name, job))

        def first() -> None:
            begin()
            self.supervisor.every(f"every {name}", interval_s, begin)

        self.supervisor.later(first_s, first)

    async def _run(self, name: str, job: Callable[[], Coroutine[None, None, None]]) -> None:
        try:
            await job()
        except RocketMQError as error:
            _log.warning("%s: %s", name, error)
        finally:
            self._jobs_running.discard(name)

    async def _leave(self, address: str, kind: str, group: str) -> None:
        try:
            await self.calls.unregister(
                address,
                self.client_id,
                producer_group=group if kind == "producer" else None,
                consumer_group=group if kind == "consumer" else None,
                timeout_s=LEAVE_TIMEOUT_S,
            )
        except RocketMQError as error:
            _log.info("broker %s was not told that group %s leaves: %s", address, group, error)

    def _on_route_changed(self, topic: str) -> None:
        for participant in [*self._producers.values(), *self._consumers.values()]:
            participant.on_routes_changed(topic)

    def _on_ids_changed(self, _request: Command, _connection: Connection) -> None:
        self.rebalance_soon()

    def _on_open(self, address: str, _connection: Connection) -> None:
        """A broker that was away must hear at once whom it serves; half a minute is too long."""
        if self.state is not ServiceState.RUNNING:
            return
        for addresses in self.routes.brokers.values():
            for broker_id, known in addresses.items():
                if known == address:
                    is_master = broker_id == MASTER_ID
                    self.supervisor.spawn(f"greet {address}", self._greet(address, is_master))
                    return

    async def _greet(self, address: str, is_master: bool) -> None:
        if await self.heartbeats.send(address, is_master=is_master):
            self.rebalance_soon()


def _own_hooks(settings: ClientSettings) -> tuple[RpcHook, ...]:
    return (NamespaceV2Hook(settings.namespace_v2),) if settings.namespace_v2 else ()


def _number_of(ip: str) -> str:
    """An address that can stand in a unique id; a client may call itself by another name."""
    try:
        encode_ip(ip)
    except ProtocolError:
        return local_ip()
    return ip


def _only_logged(name: str, error: BaseException) -> None:
    """For owners without a process to stop: the supervisor has logged the failure already."""
    del name, error
