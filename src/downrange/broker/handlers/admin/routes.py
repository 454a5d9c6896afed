"""All of the administration, built from the parts of one broker."""

from collections.abc import Awaitable, Callable

from downrange.broker.handlers.admin import unsupported
from downrange.broker.handlers.admin.broker import BrokerHandler
from downrange.broker.handlers.admin.clients import ClientCallsHandler
from downrange.broker.handlers.admin.config import ConfigHandler, LiveSettings
from downrange.broker.handlers.admin.connections import ConnectionsHandler
from downrange.broker.handlers.admin.groups import GroupsHandler
from downrange.broker.handlers.admin.offsets import GroupOffsetsHandler
from downrange.broker.handlers.admin.progress import ProgressHandler
from downrange.broker.handlers.admin.queues import QueuesHandler
from downrange.broker.handlers.admin.resets import ResetsHandler
from downrange.broker.handlers.admin.runtime_info import RuntimeInfoHandler, WaitingLines
from downrange.broker.handlers.admin.topic_views import TopicViewsHandler
from downrange.broker.handlers.admin.topics import TopicsHandler
from downrange.broker.rates import Rates
from downrange.broker.stats import BrokerStats
from downrange.broker.tables import BrokerTables
from downrange.remoting.connection import Handler
from downrange.runtime.clock import Clock
from downrange.runtime.disk import Disk
from downrange.store.message_store import MessageStore
from downrange.store.offset_tables import DelayOffsets


def admin_routes(
    tables: BrokerTables,
    store: MessageStore,
    stats: BrokerStats,
    rates: Rates,
    settings: LiveSettings,
    delay_offsets: Callable[[], DelayOffsets],
    register: Callable[[], Awaitable[object]],
    disk: Disk,
    clock: Clock,
    *,
    broker_name: str,
    broker_address: str,
    server_side_reset: bool = True,
    waiting: Callable[[], WaitingLines] = WaitingLines,
    clash: Callable[[], str | None] = lambda: None,
    not_ready: Callable[[], str | None] = lambda: None,
) -> dict[int, Handler]:
    """What the administration serves and what it refuses; other handlers win over refusals."""
    views = TopicViewsHandler(
        tables.topics,
        tables.offsets,
        tables.consumers,
        store.queues,
        store.lookup,
        rates,
        broker_name=broker_name,
        broker_address=broker_address,
    )
    info = RuntimeInfoHandler(
        store,
        stats,
        rates,
        delay_offsets,
        disk,
        clock,
        waiting,
        lambda: settings.broker.accepts_from_ms,
        clash,
        not_ready,
    )
    return {
        **unsupported.routes(),
        **TopicsHandler(
            tables.topics,
            tables.offsets,
            store,
            stats,
            register,
            tables.savers.topics.durable,
            tables.savers.offsets.durable,
        ).routes(),
        **views.routes(),
        **_group_routes(tables, store, broker_name, server_side_reset=server_side_reset),
        **_progress(tables, store, rates, clock, broker_name, broker_address).routes(),
        **QueuesHandler(store.queues, tables.consumers).routes(),
        **ConfigHandler(settings).routes(),
        **info.routes(),
        **BrokerHandler(rates, store.retention, delay_offsets).routes(),
    }


def _group_routes(
    tables: BrokerTables, store: MessageStore, broker_name: str, *, server_side_reset: bool
) -> dict[int, Handler]:
    """What is about consumer groups, their offsets and their clients."""
    topics, groups, offsets = tables.topics, tables.groups, tables.offsets
    consumers, queues, lookup = tables.consumers, store.queues, store.lookup
    offsets_durable = tables.savers.offsets.durable
    resets = ResetsHandler(
        topics,
        groups,
        offsets,
        consumers,
        queues,
        lookup,
        offsets_durable,
        broker_name=broker_name,
        server_side=server_side_reset,
    )
    calls = ClientCallsHandler(topics, groups, consumers, lookup, broker_name=broker_name)
    return {
        **GroupsHandler(groups, offsets, tables.savers.groups.durable, offsets_durable).routes(),
        **GroupOffsetsHandler(topics, offsets, consumers, queues, offsets_durable).routes(),
        **resets.routes(),
        **ConnectionsHandler(consumers, tables.producers).routes(),
        **calls.routes(),
    }


def _progress(
    tables: BrokerTables,
    store: MessageStore,
    rates: Rates,
    clock: Clock,
    broker_name: str,
    broker_address: str,
) -> ProgressHandler:
    return ProgressHandler(
        tables.topics,
        tables.groups,
        tables.offsets,
        tables.consumers,
        store.queues,
        store.lookup,
        rates,
        clock,
        broker_name=broker_name,
        broker_address=broker_address,
    )
