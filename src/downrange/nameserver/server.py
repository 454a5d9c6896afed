"""A name server process: builds the parts, opens the door, watches the brokers."""

import logging

from downrange.nameserver.broker_names import MinBrokerIdNotice
from downrange.nameserver.current_settings import CurrentSettings
from downrange.nameserver.handlers import NameServerHandlers
from downrange.nameserver.kv_table import KvTable
from downrange.nameserver.route_table import RouteTable
from downrange.nameserver.settings import NameServerSettings
from downrange.nameserver.view import NameServerView
from downrange.protocol.errors import ProtocolError
from downrange.protocol.headers.fields import encode_header
from downrange.protocol.headers.nameserver import NotifyMinBrokerIdChangeRequest
from downrange.protocol.hosts import format_address
from downrange.protocol.request_codes import RequestCode
from downrange.remoting.client import RemotingClient
from downrange.remoting.connection import Connection
from downrange.remoting.errors import RemotingError
from downrange.remoting.network import Network
from downrange.remoting.server import CONNECTIONS_MAX, RemotingServer
from downrange.remoting.settings import ConnectionSettings
from downrange.runtime.clock import Clock
from downrange.runtime.disk import Disk
from downrange.runtime.loop_watch import LoopWatch
from downrange.runtime.processor_wait import processor_wait
from downrange.runtime.service import OnFailure, Supervisor

_log = logging.getLogger(__name__)

NOTICE_TIMEOUT_S = 0.3  # as long as RocketMQ waits for a connection to a broker


def _only_logged(name: str, error: BaseException) -> None:
    """For owners without a process to stop: the supervisor has logged the failure already."""
    del name, error


class NameServer:
    """Serves from `start` to `stop`. Name servers do not know each other: brokers tell each one.

    `on_failure` hears of a part that broke down; whoever owns the process should end it then.
    """

    def __init__(
        self,
        settings: NameServerSettings,
        network: Network,
        clock: Clock,
        disk: Disk,
        *,
        on_failure: OnFailure = _only_logged,
        connections_max: int = CONNECTIONS_MAX,
        connections: ConnectionSettings | None = None,
    ) -> None:
        self._host, self._port = settings.host, settings.port
        self._scan_interval_s = settings.scan_interval_ms / 1000
        self._clock = clock
        self._is_stopping = False
        self._is_serving = False
        self._settings = CurrentSettings(settings, disk)
        self._kv = KvTable(disk, settings.kv_config_path.expanduser())
        self._table = RouteTable()
        self._watch = LoopWatch(clock.monotonic_s, processor_wait())
        self._supervisor = Supervisor(on_failure, self._watch)
        self._brokers = RemotingClient(network, connect_timeout_s=NOTICE_TIMEOUT_S)
        handlers = NameServerHandlers(self._table, self._kv, self._settings, clock, self._notify)
        self._server = RemotingServer(
            network,
            self._supervisor,
            handlers.routes(),
            on_close=self._on_close,
            idle_s_max=settings.idle_s_max,
            connections_max=connections_max,
            settings=connections,
            watch=self._watch,
        )

    def view(self) -> NameServerView | None:
        """What there is to see; None while the door is closed."""
        if not self._is_serving:
            return None
        info = self._table.cluster_info()
        return NameServerView(
            brokers_by_cluster={
                cluster: sum(len(self._table.members(name)) for name in names)
                for cluster, names in info.cluster_addr_table.items()
            },
            topic_count=len(self._table.topics.names()),
            connection_count=len(self._server.connections),
            watch=self._watch,
            intake=self._server.intake,
        )

    async def start(self) -> str:
        """Load the key-value table and open the door; returns the address."""
        self._kv.load()
        host, port = await self._server.listen(self._host, self._port)
        self._supervisor.every("expire brokers", self._scan_interval_s, self._expire)
        address = format_address(host, port)
        self._is_serving = True
        _log.info("name server ready address=%s", address)
        return address

    async def stop(self) -> None:
        """Close the door and everything behind it."""
        self._is_stopping = True
        self._is_serving = False
        settings = self._settings.now
        if settings.stops_gracefully:
            await self._server.go_away(settings.stop_wait_s)
        await self._server.stop()
        self._brokers.close()
        await self._supervisor.stop()

    def _on_close(self, connection: Connection) -> None:
        if not self._is_stopping:
            for notice in self._table.peer_closed(connection):
                self._notify(notice)

    def _expire(self) -> None:
        peers, notices = self._table.expire(int(self._clock.monotonic_s() * 1000))
        for peer in peers:
            peer.close()
        for notice in notices:
            self._notify(notice)

    def _notify(self, notice: MinBrokerIdNotice) -> None:
        if self._settings.now.notify_min_broker_id_changed:
            for address in notice.recipients:
                self._supervisor.spawn(f"notify {address}", self._tell(address, notice))

    async def _tell(self, address: str, notice: MinBrokerIdNotice) -> None:
        header = NotifyMinBrokerIdChangeRequest(
            min_broker_id=notice.min_broker_id,
            min_broker_addr=notice.min_address,
            offline_broker_addr=notice.offline_address,
            ha_broker_addr=notice.ha_address,
        )
        try:
            connection = await self._brokers.connect(address)
        except (RemotingError, ProtocolError) as error:  # a broker may give any text as its address
            _log.warning("broker not told of the lowest id address=%s: %s", address, error)
            return
        connection.send_one_way(RequestCode.NOTIFY_MIN_BROKER_ID_CHANGE, encode_header(header))
