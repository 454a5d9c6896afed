"""Keeps the name servers informed: who this broker is and which topics it has."""

import asyncio
import logging
from collections.abc import Awaitable, Callable

from msgspec.structs import replace

from downrange.broker.settings import BrokerSettings
from downrange.broker.topic_table import TopicTable
from downrange.model.topics import MASTER_ID, Permission
from downrange.protocol.bodies import registration
from downrange.protocol.bodies.json_body import decode_body
from downrange.protocol.bodies.registration import Registration, body_crc
from downrange.protocol.bodies.route import ClusterInfo
from downrange.protocol.errors import ProtocolError
from downrange.protocol.headers.fields import encode_header
from downrange.protocol.headers.nameserver import RegisterBrokerRequest, UnregisterBrokerRequest
from downrange.protocol.hosts import format_address
from downrange.protocol.json_text import write_json_steps
from downrange.protocol.request_codes import RequestCode
from downrange.remoting.client import RemotingClient
from downrange.remoting.errors import RemotingError
from downrange.runtime.service import Supervisor
from downrange.runtime.slices import in_slices

_log = logging.getLogger(__name__)

REGISTER_TIMEOUT_S = 24.0
UNREGISTER_TIMEOUT_S = 3.0
CLUSTER_INFO_TIMEOUT_S = 3.0
ANNOUNCED_WAIT_S = 2.0  # a producer waits 3 s for its answer; a silent name server must not cost it

Announced = Callable[[], Awaitable[None]]  # returns when the name servers know all topics


class Registrar:
    """Registers at every name server, periodically and at once when topics change.

    A name server that is unreachable or refuses is tried again at the next period; the others go
    on. Name servers that never took a registration of this process are not told when it leaves:
    what they know under its name and address is another broker.
    """

    def __init__(
        self,
        client: RemotingClient,
        supervisor: Supervisor,
        name_servers: Callable[[], list[str]],
        describe: Callable[[], Registration],
        *,
        cluster_name: str,
        broker_name: str,
        broker_id: int,
        broker_address: str,
        ha_address: str,
    ) -> None:
        self._client = client
        self._supervisor = supervisor
        self._name_servers = name_servers
        self._describe = describe
        self._cluster_name = cluster_name
        self._broker_name = broker_name
        self._broker_id = broker_id
        self._broker_address = broker_address
        self._ha_address = ha_address
        self._is_due = False
        self._heard: asyncio.Future[None] | None = None
        self._unreachable: set[str] = set()
        self._refusals: dict[str, str] = {}  # name server -> its reason
        self._rivals: dict[str, str] = {}  # name server -> address under our name and id
        self._told: set[str] = set()  # name servers that may have a registration of ours

    @property
    def is_known(self) -> bool:
        """Whether a name server has this broker, as far as the last attempts tell."""
        servers = self._name_servers()
        return not servers or any(server not in self._unreachable for server in servers)

    @property
    def clash(self) -> str | None:
        """What a name server says against this broker's name and id, or who else uses them."""
        for server, reason in self._refusals.items():
            return f"name server {server} refuses this broker: {reason}"
        for server, rival in self._rivals.items():
            return self._rival_text(server, rival)
        return None

    def renew(self) -> None:
        """Register again as every period does, after a look for a rival with our name and id."""
        self._supervisor.spawn("renew registration", self._renew())

    def announce(self) -> None:
        """Register at all name servers once this turn of the loop is over."""
        if not self._is_due:
            self._is_due = True
            self._heard = asyncio.get_running_loop().create_future()
            self._supervisor.spawn("register", self._register_all(self._heard))

    async def announced(self) -> None:
        """Return when the name servers have heard the last announcement, or a little later."""
        if self._heard is not None:
            await asyncio.wait([self._heard], timeout=ANNOUNCED_WAIT_S)

    async def register(self) -> int:
        """Register at all name servers; returns how many took it."""
        servers = self._name_servers()
        results = await asyncio.gather(*(self._register_at(server) for server in servers))
        return sum(results)

    async def unregister(self) -> None:
        """Tell the name servers that took a registration of ours that this broker leaves."""
        await asyncio.gather(*(self._unregister_at(server) for server in sorted(self._told)))
        self._told.clear()

    async def _renew(self) -> None:
        servers = self._name_servers()
        await asyncio.gather(*(self._look_for_rival(server) for server in servers))
        self.announce()

    async def _register_all(self, heard: asyncio.Future[None]) -> None:
        self._is_due = False
        try:
            await self.register()
        finally:
            heard.set_result(None)

    async def _register_at(self, server: str) -> bool:
        body = await in_slices(write_json_steps(self._describe()))  # not compressed
        header = RegisterBrokerRequest(
            broker_name=self._broker_name,
            broker_addr=self._broker_address,
            cluster_name=self._cluster_name,
            ha_server_addr=self._ha_address,
            broker_id=self._broker_id,
            compressed=False,
            body_crc32=body_crc(body),
        )
        was_told = server in self._told
        # From here on it may have the registration, whatever becomes of its answer.
        self._told.add(server)
        try:
            answer = await self._client.call(
                server,
                RequestCode.REGISTER_BROKER,
                encode_header(header),
                body,
                timeout_s=REGISTER_TIMEOUT_S,
            )
        except RemotingError as error:
            if server not in self._unreachable:
                _log.warning("name server %s does not know this broker: %s", server, error)
                self._unreachable.add(server)
            return False
        if answer.code:
            self._unreachable.add(server)
            if not was_told:
                self._told.discard(server)
            reason = answer.remark or f"response code {answer.code}"
            if self._refusals.get(server) != reason:
                _log.error("name server %s refuses this broker: %s", server, reason)
                self._refusals[server] = reason
            return False
        self._refusals.pop(server, None)
        if server in self._unreachable:
            _log.info("name server %s knows this broker again", server)
            self._unreachable.discard(server)
        return True

    async def _look_for_rival(self, server: str) -> None:
        """Find a broker that took our name and id since we registered.

        Apache's name servers let the later registration win, so the two take the route from each
        other without a word.
        """
        if server not in self._told or server in self._unreachable:
            return
        try:
            answer = await self._client.call(
                server, RequestCode.GET_BROKER_CLUSTER_INFO, timeout_s=CLUSTER_INFO_TIMEOUT_S
            )
            info = decode_body(ClusterInfo, answer.body) if not answer.code else ClusterInfo()
        except (RemotingError, ProtocolError) as error:
            _log.info("name server %s: cannot look for a broker of our name: %s", server, error)
            return
        data = info.broker_addr_table.get(self._broker_name)
        rival = data.broker_addrs.get(self._broker_id) if data is not None else None
        if rival is None or rival == self._broker_address:
            self._rivals.pop(server, None)
        elif self._rivals.get(server) != rival:
            self._rivals[server] = rival
            _log.error("%s", self._rival_text(server, rival))

    def _rival_text(self, server: str, rival: str) -> str:
        return (
            f"broker name {self._broker_name} with brokerId {self._broker_id} is used by this"
            f" broker at {self._broker_address} and by another at {rival}, which name server"
            f" {server} knows: clients reach one or the other; give each its own brokerName (or"
            " brokerId for a slave)"
        )

    async def _unregister_at(self, server: str) -> None:
        header = UnregisterBrokerRequest(
            broker_name=self._broker_name,
            broker_addr=self._broker_address,
            cluster_name=self._cluster_name,
            broker_id=self._broker_id,
        )
        try:
            await self._client.call(
                server,
                RequestCode.UNREGISTER_BROKER,
                encode_header(header),
                timeout_s=UNREGISTER_TIMEOUT_S,
            )
        except RemotingError as error:
            _log.info("name server %s was not told that this broker goes: %s", server, error)


def build_registrar(
    client: RemotingClient,
    supervisor: Supervisor,
    settings: Callable[[], BrokerSettings],
    topics: TopicTable,
    port: int,
) -> Registrar:
    """The registrar of a broker that listens on this port; always a master, there are no others."""
    now = settings()
    return Registrar(
        client,
        supervisor,
        lambda: settings().name_server_list,
        lambda: registration_of(topics, settings().permission),
        cluster_name=now.cluster_name,
        broker_name=now.effective_name,
        broker_id=MASTER_ID,
        broker_address=format_address(now.effective_address, port),
        ha_address=now.ha_address(port),
    )


def registration_of(topics: TopicTable, allowed: int) -> Registration:
    """What name servers are told: the topics that are on disk.

    A broker that may not do all says so of each topic.
    """
    table = topics.durable_table()
    configs = table.topics
    if allowed & Permission.READ_WRITE != Permission.READ_WRITE:
        configs = {
            name: replace(config, perm=config.perm & allowed) for name, config in configs.items()
        }
    return Registration(
        topic_config_serialize_wrapper=registration.TopicTable(
            topic_config_table=configs, data_version=table.data_version
        )
    )
