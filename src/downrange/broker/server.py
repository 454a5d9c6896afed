"""The broker as a process holds it: builds the parts, starts and stops them in order."""

import asyncio
import logging
import random
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path

from downrange.broker.assembly import Assembler, Assembly
from downrange.broker.handlers.admin.config import LiveSettings
from downrange.broker.handlers.admin.config_file import ConfigFile
from downrange.broker.handlers.admin.routes import admin_routes
from downrange.broker.handlers.admin.runtime_info import WaitingLines
from downrange.broker.hooks import BrokerHooks
from downrange.broker.overload import Protection
from downrange.broker.rates import SAMPLE_S, Rates
from downrange.broker.readiness import not_ready_text
from downrange.broker.registration import Registrar, build_registrar
from downrange.broker.request_times import RequestTimes
from downrange.broker.routes import TopicRoutes
from downrange.broker.setting_changes import SettingChanges
from downrange.broker.settings import BrokerSettings, StoreFileSettings
from downrange.broker.stats import BrokerStats
from downrange.broker.store_keeper import StoreKeeper
from downrange.broker.tables import BrokerTables, open_tables
from downrange.broker.view import BrokerView, waiting_lines
from downrange.protocol.headers.broker_to_client import NotifyConsumerIdsChangedRequest
from downrange.protocol.headers.fields import encode_header
from downrange.protocol.hosts import format_address
from downrange.protocol.request_codes import RequestCode
from downrange.remoting.client import RemotingClient
from downrange.remoting.connection import Connection, Handler
from downrange.remoting.network import Network
from downrange.remoting.server import CONNECTIONS_MAX, RemotingServer
from downrange.remoting.settings import ConnectionSettings
from downrange.runtime.blocking import BlockingRunner
from downrange.runtime.clock import Clock
from downrange.runtime.disk import Disk
from downrange.runtime.loop_watch import LoopWatch
from downrange.runtime.processor_wait import processor_wait
from downrange.runtime.service import OnFailure, Supervisor
from downrange.store.message_store import MessageStore
from downrange.store.settings import OPEN_FILES_MAX

_log = logging.getLogger(__name__)

FAST_PORT_DISTANCE = 2  # RocketMQ serves producers on a second port, the listen port minus 2
SWEEP_S = 0.5
DEFAULT_CONFIG_NAME = "broker.properties"  # where changes go if no file was given
EXPIRE_CLIENTS_S = 10.0


@dataclass(frozen=True, slots=True)
class Surroundings:
    """What a broker stands in; a test brings its own."""

    network: Network
    clock: Clock
    disk: Disk
    chance: random.Random
    syncs: BlockingRunner  # of the store
    saves: BlockingRunner  # of the tables
    scrubs: BlockingRunner  # reads the log to find damage
    process_id: int
    connections_max: int = CONNECTIONS_MAX
    connections: ConnectionSettings = field(default_factory=ConnectionSettings)
    open_files_max: int = OPEN_FILES_MAX


class Broker:
    """One master with one store. `start` and `stop` are called once each."""

    def __init__(
        self,
        settings: BrokerSettings,
        store_files: StoreFileSettings,
        around: Surroundings,
        *,
        on_failure: OnFailure,
        config_file: Path | None = None,
        hooks: BrokerHooks | None = None,
        request_times: RequestTimes | None = None,
    ) -> None:
        self._request_times = request_times
        self._config_file = config_file
        self._hooks = hooks or BrokerHooks()
        self._changes = SettingChanges()
        self._settings = settings
        self._store_files = store_files
        self._around = around
        self._watch = LoopWatch(around.clock.monotonic_s, processor_wait())
        self._supervisor = Supervisor(on_failure, self._watch)
        self._client = RemotingClient(around.network)
        self._routes: dict[int, Handler] = {}
        self._server = RemotingServer(
            around.network,
            self._supervisor,
            self._routes,
            on_close=self._on_close,
            idle_s_max=settings.idle_s_max,
            connections_max=around.connections_max,
            settings=around.connections,
            watch=self._watch,
        )
        self.stats = BrokerStats()
        self._rates = Rates(self.stats, around.clock, settings.cluster_name)
        self._store: MessageStore | None = None
        self._tables: BrokerTables | None = None
        self._keeper: StoreKeeper | None = None
        self._parts: Assembly | None = None
        self._registrar: Registrar | None = None
        self._view: Callable[[], BrokerView] | None = None

    def view(self) -> BrokerView | None:
        """What there is to see; None while the broker does not serve."""
        return None if self._view is None else self._view()

    async def start(self) -> str:
        """Bind, recover the store, serve, tell the name servers; returns the advertised address.

        A port that is in use ends the start before the store is read or anybody is told.
        """
        settings, around = self._settings, self._around
        port = await self._bind()
        address = format_address(settings.effective_address, port)
        store = await self._open_store(port)
        spawn = self._supervisor.spawn
        tables = open_tables(settings, store, around.disk, around.clock, around.saves, spawn)
        self._tables = tables
        self.stats.is_system = tables.topics.is_system
        protection = Protection(settings, self._watch)
        self._keeper = keeper = StoreKeeper(
            store, self._supervisor, around.syncs, protection.waiting_sends.note, around.scrubs
        )
        self._registrar = registrar = build_registrar(
            self._client, self._supervisor, lambda: self._settings, tables.topics, port
        )
        self._parts = parts = Assembler(
            settings,
            store,
            keeper,
            tables,
            self.stats,
            self._rates,
            TopicRoutes(
                self._client, lambda: self._settings.name_server_list, around.clock, around.chance
            ),
            self._supervisor.later,
            around.clock,
            around.chance,
            registrar.announced,
            protection,
            self._changes,
            self._hooks,
            address=address,
            process_id=around.process_id,
        ).assemble()

        def waiting() -> WaitingLines:
            return waiting_lines(self._settings, protection, parts)

        # The administration refuses what is not built; real handlers win over its refusals.
        admin = self._admin_routes(store, tables, registrar, address, waiting)
        self._routes.update(protection.admin.bound(admin))
        self._routes.update(parts.routes)
        if self._request_times is not None:
            self._routes.update(self._request_times.timed(self._routes))
        self._server.turn.shortcut = parts.shortcut
        self._server.turn.on_end = keeper.show_appended
        self._follow_changes(store, tables, protection, registrar)
        tables.consumers.on_ids_changed.append(self._notify_ids_changed)
        tables.savers.request_changed()
        await tables.savers.settle()
        # A topic is announced when it is durable: a broker that forgets it would lose its name.
        tables.savers.topics.on_saved.append(registrar.announce)
        keeper.start()
        parts.delayed.start()
        self._start_jobs(tables, parts)
        await self._server.accept()
        await registrar.register()
        self._view = self._viewer(store, tables, registrar, address, waiting)
        self._supervisor.every("register", settings.register_period_ms / 1000, registrar.renew)
        _log.info("broker %s serves %s", settings.effective_name, address)
        return address

    async def stop(self) -> None:
        """Leave the name servers, answer who waits, make everything durable."""
        self._view = None
        if self._registrar is not None:
            await self._registrar.unregister()
        parts = self._parts
        if self._settings.stops_gracefully and parts is not None:
            parts.pulls.stop()
            await self._server.go_away(self._settings.stop_wait_s)
        self._server.quiesce()
        if parts is not None:
            parts.pulls.stop()
        if self._keeper is not None:
            await self._keeper.drain()
        if self._tables is not None:
            await self._tables.savers.settle()
        await self._server.stop()
        self._client.close()
        if self._keeper is not None:
            await self._keeper.stop()
        else:
            self._around.syncs.close()  # the store may still be about to be given up
        await self._supervisor.stop()
        if parts is not None:
            parts.delayed.stop()
            parts.transaction_check.stop()
            parts.half_messages.flush_ends()
        # Progress is saved only as far as the log is durable.
        if self._store is not None and self._store.is_open:
            self._store.flush_now()
        if parts is not None:
            parts.transaction_check.settle()
            parts.delayed.settle()
        if self._tables is not None:
            await self._tables.savers.close()
        if self._store is not None:
            self._store.close()

    async def crash(self) -> None:
        """End as if the process had been killed: nobody is told, nothing is flushed or saved."""
        self._view = None
        await self._server.abort()
        self._client.close()
        if self._keeper is not None:
            await self._keeper.stop()
        if self._tables is not None:
            await self._tables.savers.stop()
        await self._supervisor.stop()
        if self._parts is not None:
            self._parts.delayed.stop()
            self._parts.transaction_check.stop()
        if self._store is not None:
            self._store.abandon()

    async def _open_store(self, port: int) -> MessageStore:
        """Recovery takes as long as there is log to read; the loop stays free to hear of a stop."""
        files = self._store_files.store_settings(self._settings, port)
        settings = replace(files, open_files_max=self._around.open_files_max)
        self._store = store = MessageStore(settings, self._around.disk, self._around.clock)

        def open_store() -> None:
            store.open()

        try:
            await self._around.syncs.run(open_store)
        except asyncio.CancelledError:
            store.give_up()
            raise
        return store

    def _admin_routes(
        self,
        store: MessageStore,
        tables: BrokerTables,
        registrar: Registrar,
        address: str,
        waiting: Callable[[], WaitingLines],
    ) -> dict[int, Handler]:
        disk, clock = self._around.disk, self._around.clock
        config_path = store.settings.config_path
        file = self._config_file or config_path / DEFAULT_CONFIG_NAME
        return admin_routes(
            tables,
            store,
            self.stats,
            self._rates,
            LiveSettings(
                self._settings,
                self._store_files,
                ConfigFile(disk, file),
                clock,
                live=self._changes.live(),
            ),
            tables.delays.to_file,
            registrar.register,
            disk,
            clock,
            broker_name=self._settings.effective_name,
            broker_address=address,
            server_side_reset=self._settings.server_side_reset,
            waiting=waiting,
            clash=lambda: registrar.clash,
            not_ready=lambda: not_ready_text(self.view()),
        )

    def _viewer(
        self,
        store: MessageStore,
        tables: BrokerTables,
        registrar: Registrar,
        address: str,
        waiting: Callable[[], WaitingLines],
    ) -> Callable[[], BrokerView]:
        return lambda: BrokerView(
            settings=self._settings,
            address=address,
            store=store,
            tables=tables,
            stats=self.stats,
            rates=self._rates,
            waiting=waiting(),
            connection_count=len(self._server.connections),
            request_times=self._request_times,
            is_known=registrar.is_known,
            sync_wait_s=0.0 if self._keeper is None else self._keeper.sync_wait_s,
            watch=self._watch,
            intake=self._server.intake,
        )

    def _follow_changes(
        self,
        store: MessageStore,
        tables: BrokerTables,
        protection: Protection,
        registrar: Registrar,
    ) -> None:
        """Have new settings reach what is not a handler."""

        def on_broker(new: BrokerSettings) -> None:
            old, self._settings = self._settings, new
            tables.topics.change(auto_create_enabled=new.auto_create_topics)
            tables.groups.change(auto_create_enabled=new.auto_create_groups)
            tables.consumers.client_expiry_ms = new.client_expiry_ms
            tables.producers.client_expiry_ms = new.client_expiry_ms
            protection.change(new)
            if (old.permission, old.name_servers) != (new.permission, new.name_servers):
                # The version changes with what the name servers have to hear.
                tables.topics.touch()
                registrar.announce()

        def on_store(new: StoreFileSettings) -> None:
            self._store_files = new
            store.change(new.store_settings(self._settings, self._settings.listen_port))

        self._changes.on_broker.append(on_broker)
        self._changes.on_store.append(on_store)

    def _start_jobs(self, tables: BrokerTables, parts: Assembly) -> None:
        settings, every = self._settings, self._supervisor.every

        def save_tables() -> None:
            parts.transaction_check.settle()
            parts.delayed.settle()
            tables.savers.request_changed()

        every("save tables", settings.flush_offsets_ms / 1000, save_tables)
        every("sample rates", SAMPLE_S, self._rates.sample)
        every("expire clients", EXPIRE_CLIENTS_S, self._expire_clients)
        every("answer waiting pulls", SWEEP_S, parts.pulls.sweep)
        every(
            "check transactions",
            settings.transaction_check_interval_ms / 1000,
            parts.transaction_check.check,
        )

    async def _bind(self) -> int:
        """Reserve the ports; the store stamps its records with the one that is returned."""
        host, wanted = self._settings.bind_address, self._settings.listen_port
        _, port = await self._server.bind(host, wanted)
        if wanted:
            await self._bind_fast(host, port - FAST_PORT_DISTANCE)
        return port

    async def _bind_fast(self, host: str, port: int) -> None:
        try:
            await self._server.bind(host, port)
        except OSError as error:
            _log.warning("the second port %d is not served: %s", port, error)

    def _on_close(self, connection: Connection) -> None:
        if self._tables is not None:
            self._tables.consumers.on_close(connection)
            self._tables.producers.on_close(connection)

    def _expire_clients(self) -> None:
        assert self._tables is not None
        gone = self._tables.consumers.expire() + self._tables.producers.expire()
        for connection in gone:
            connection.close()
        self._tables.locks.expire()

    def _notify_ids_changed(self, group: str, connections: tuple[Connection, ...]) -> None:
        if not self._settings.notifies_changes:
            return
        fields = encode_header(NotifyConsumerIdsChangedRequest(consumer_group=group))
        for connection in connections:
            connection.send_one_way(RequestCode.NOTIFY_CONSUMER_IDS_CHANGED, fields)
