"""Puts a broker's parts together, each with what it needs and no more."""

import asyncio
import random
from dataclasses import dataclass, replace

from downrange.broker.creation_wait import CreationWait
from downrange.broker.delay import CallLater, DelayedDelivery
from downrange.broker.half_messages import HalfMessages
from downrange.broker.handlers.assignment import AssignmentHandler
from downrange.broker.handlers.client import ClientHandler
from downrange.broker.handlers.lock import LockHandler
from downrange.broker.handlers.offset import OffsetHandler
from downrange.broker.handlers.plain_send import PlainSendHandler
from downrange.broker.handlers.pull import PullHandler
from downrange.broker.handlers.query import QueryHandler
from downrange.broker.handlers.reply import ReplyHandler
from downrange.broker.handlers.send import SendHandler
from downrange.broker.handlers.send_back import SendBackHandler
from downrange.broker.handlers.transaction import TransactionHandler
from downrange.broker.hooks import BrokerHooks, HookedConsumes, HookedSends
from downrange.broker.message_writer import MessageWriter
from downrange.broker.overload import Protection
from downrange.broker.rates import Rates
from downrange.broker.registration import Announced
from downrange.broker.retry_sends import RetrySends
from downrange.broker.routes import TopicRoutes
from downrange.broker.send_reply import SendReply
from downrange.broker.setting_changes import SettingChanges
from downrange.broker.settings import BrokerSettings, StoreFileSettings
from downrange.broker.stats import BrokerStats
from downrange.broker.store_keeper import StoreKeeper
from downrange.broker.subscriptions import SubscriptionFilters
from downrange.broker.tables import BrokerTables
from downrange.broker.transaction_check import HOUR_MS, CheckSettings, TransactionCheck
from downrange.model.names import SCHEDULE_TOPIC
from downrange.model.topics import Permission
from downrange.protocol.delay_levels import DelayLevels
from downrange.protocol.unique_id import UniqueIdGenerator
from downrange.remoting.connection import Handler
from downrange.remoting.turn import Shortcut
from downrange.runtime.clock import Clock
from downrange.store.message_store import MessageStore
from downrange.store.reader import physical_memory_bytes


@dataclass(frozen=True, slots=True)
class Assembly:
    """The parts that have a life of their own, and what is served."""

    pulls: PullHandler
    delayed: DelayedDelivery
    half_messages: HalfMessages
    transaction_check: TransactionCheck
    routes: dict[int, Handler]
    shortcut: Shortcut | None


class Assembler:
    """Builds the parts of one broker around its store and tables."""

    def __init__(
        self,
        settings: BrokerSettings,
        store: MessageStore,
        keeper: StoreKeeper,
        tables: BrokerTables,
        stats: BrokerStats,
        rates: Rates,
        topic_routes: TopicRoutes,
        call_later: CallLater,
        clock: Clock,
        chance: random.Random,
        announced: Announced,
        protection: Protection,
        changes: SettingChanges,
        hooks: BrokerHooks,
        *,
        address: str,
        process_id: int,
    ) -> None:
        self._settings = settings
        self._store = store
        self._tables = tables
        self._stats = stats
        self._rates = rates
        self._topic_routes = topic_routes
        self._call_later = call_later
        self._clock = clock
        self._chance = chance
        self._announced = announced
        self._protection = protection
        self._on_change = changes.on_broker.append
        self._on_store_change = changes.on_store.append
        self._hooked_sends = (
            HookedSends(hooks.sends, clock, store.settings.store_host) if hooks.sends else None
        )
        self._hooked_consumes = HookedConsumes(hooks.consumes) if hooks.consumes else None
        self._address = address
        self._process_id = process_id
        self._loop = asyncio.get_running_loop()
        self._levels = DelayLevels.parse(store.settings.delay_levels)
        self._keeper = keeper
        self._writer = MessageWriter(store, keeper, self._levels, stats.add_put_failure)
        durable = tables.savers.creations_durable
        self._creations = CreationWait(tables.topics, tables.groups, durable)
        self._send_reply = SendReply(
            store.settings.store_host, settings.region, traces=settings.traces
        )
        if self._hooked_sends is not None:
            self._send_reply = self._hooked_sends.reply(self._send_reply)
        self._filters = filters = SubscriptionFilters(sql92_enabled=settings.sql92_enabled)
        self._on_change(lambda new: filters.change(sql92_enabled=new.sql92_enabled))

    def assemble(self) -> Assembly:
        """All parts, none of them started."""
        half_messages = HalfMessages(
            self._store, self._writer, self._stats, self._clock, self._call_later
        )
        pulls = self._pulls()
        delayed = DelayedDelivery(
            self._store,
            self._writer,
            self._levels,
            self._tables.delays,
            self._stats,
            self._clock,
            self._call_later,
        )
        sends = self._sends(half_messages)
        self._store.add_listener(delayed.on_arrival, (SCHEDULE_TOPIC,))
        return Assembly(
            pulls=pulls,
            delayed=delayed,
            half_messages=half_messages,
            transaction_check=self._transaction_check(half_messages),
            routes={
                **self._with_hooks(sends.routes()),
                **pulls.routes(),
                **self._group_routes(),
                **self._message_routes(half_messages),
            },
            # The short way knows no hooks.
            shortcut=self._plain_sends(sends).serve if self._hooked_sends is None else None,
        )

    def _plain_sends(self, sends: SendHandler) -> PlainSendHandler:
        return PlainSendHandler(
            self._tables.topics,
            sends.admitted,
            self._store,
            self._keeper,
            self._stats,
            self._rates.puts,
            self._send_reply,
            self._clock,
            self._protection.sends,
            additions=sends.additions,
        )

    def _with_hooks(self, routes: dict[int, Handler]) -> dict[int, Handler]:
        if self._hooked_sends is None:
            return routes
        return {code: self._hooked_sends.around(handler) for code, handler in routes.items()}

    def _sends(self, half_messages: HalfMessages) -> SendHandler:
        settings, tables = self._settings, self._tables
        handler = SendHandler(
            tables.topics,
            RetrySends(tables.topics, tables.groups, tables.locks),
            self._writer,
            half_messages,
            self._stats,
            self._rates.puts,
            self._send_reply,
            UniqueIdGenerator(
                ip=settings.effective_address,
                process_id=self._process_id,
                clock=self._clock,
                random=self._chance,
            ),
            self._clock,
            self._chance,
            self._announced,
            self._creations,
            self._protection.sends,
            cluster_name=settings.cluster_name,
            region=settings.region,
            traces=settings.traces,
            broker_address=self._address,
            is_writable=bool(settings.permission & Permission.WRITE),
            rejects_transactions=settings.rejects_transactions,
            accepts_from_ms=settings.accepts_from_ms,
        )
        self._on_change(
            lambda new: handler.change(
                is_writable=bool(new.permission & Permission.WRITE),
                rejects_transactions=new.rejects_transactions,
                accepts_from_ms=new.accepts_from_ms,
            )
        )
        return handler

    def _pulls(self) -> PullHandler:
        settings, tables = self._settings, self._tables
        handler = PullHandler(
            self._store,
            tables.topics,
            tables.groups,
            tables.offsets,
            tables.consumers,
            self._filters,
            self._stats,
            self._rates.pulls,
            self._loop.time,
            self._loop.call_soon,
            self._protection.pulls,
            tables.filters.get,
            broker_address=self._address,
            before_consume=(
                self._hooked_consumes.before_consume if self._hooked_consumes is not None else None
            ),
            waiting_max=settings.waiting_pulls_max,
            is_readable=bool(settings.permission & Permission.READ),
            long_polling_enabled=settings.long_polling_enabled,
            short_polling_ms=settings.short_polling_ms,
        )
        self._on_change(
            lambda new: handler.change(
                is_readable=bool(new.permission & Permission.READ),
                long_polling_enabled=new.long_polling_enabled,
                short_polling_ms=new.short_polling_ms,
                waiting_max=new.waiting_pulls_max,
            )
        )
        return handler

    def _transaction_check(self, half_messages: HalfMessages) -> TransactionCheck:
        tables = self._tables
        check = TransactionCheck(
            self._store,
            half_messages,
            self._writer,
            tables.offsets,
            tables.producers,
            tables.topics,
            self._clock,
            self._call_later,
            self._check_settings(self._settings),
        )

        def change(new: BrokerSettings) -> None:
            check.settings = self._check_settings(new)

        def change_age(new: StoreFileSettings) -> None:
            age_max_ms = new.file_reserved_hours * HOUR_MS
            check.settings = replace(check.settings, age_max_ms=age_max_ms)

        self._on_change(change)
        self._on_store_change(change_age)
        return check

    def _check_settings(self, settings: BrokerSettings) -> CheckSettings:
        return CheckSettings(
            broker_name=settings.effective_name,
            timeout_ms=settings.transaction_timeout_ms,
            times_max=settings.transaction_check_max,
            age_max_ms=self._store.settings.retention.file_reserved_hours * HOUR_MS,
        )

    def _group_routes(self) -> dict[int, Handler]:
        """What consumers ask about their group."""
        store, tables = self._store, self._tables
        window = int(physical_memory_bytes() * store.settings.read.memory_ratio)
        return {
            **ClientHandler(
                tables.topics,
                tables.groups,
                tables.consumers,
                tables.producers,
                self._filters.filter_of,
                self._announced,
                tables.savers.creations_durable,
                tables.filters.register,
            ).routes(),
            **OffsetHandler(
                tables.topics,
                tables.groups,
                tables.offsets,
                store.queues,
                store.lookup,
                lambda offset: store.log.max_offset - offset <= window,
            ).routes(),
            **LockHandler(
                tables.locks, tables.groups.__contains__, tables.topics.has_queue
            ).routes(),
            **self._protection.assignments.bound(
                AssignmentHandler(
                    tables.topics,
                    tables.groups,
                    tables.consumers,
                    tables.modes,
                    self._topic_routes.readable_queues,
                    tables.savers.modes.durable,
                    broker_name=self._settings.effective_name,
                ).routes()
            ),
        }

    def _message_routes(self, half_messages: HalfMessages) -> dict[int, Handler]:
        """What is asked about single messages."""
        return {
            **QueryHandler(self._store.lookup).routes(),
            **self._transactions(half_messages).routes(),
            **self._send_backs().routes(),
            **self._reply_routes(),
        }

    def _transactions(self, half_messages: HalfMessages) -> TransactionHandler:
        handler = TransactionHandler(
            half_messages,
            self._writer,
            self._clock,
            timeout_ms=self._settings.transaction_timeout_ms,
            waiting_ends_max=self._settings.waiting_ends_max,
        )
        self._on_change(
            lambda new: handler.change(
                timeout_ms=new.transaction_timeout_ms, waiting_ends_max=new.waiting_ends_max
            )
        )
        return handler

    def _send_backs(self) -> SendBackHandler:
        tables, hooked = self._tables, self._hooked_consumes
        handler = SendBackHandler(
            self._store.lookup,
            tables.topics,
            tables.groups,
            self._creations,
            self._writer,
            self._stats,
            self._chance,
            broker_address=self._address,
            is_writable=bool(self._settings.permission & Permission.WRITE),
            after_send_back=hooked.after_send_back if hooked is not None else None,
        )

        def change(new: BrokerSettings) -> None:
            handler.is_writable = bool(new.permission & Permission.WRITE)

        self._on_change(change)
        return handler

    def _reply_routes(self) -> dict[int, Handler]:
        """Answers to requests of other clients."""
        settings, tables = self._settings, self._tables
        replies = ReplyHandler(
            tables.topics,
            tables.producers,
            self._creations,
            self._writer,
            self._stats,
            self._clock,
            self._chance,
            store_host=self._store.settings.store_host,
            region=settings.region,
            traces=settings.traces,
            stores_replies=settings.store_replies,
            accepts_from_ms=settings.accepts_from_ms,
        )
        self._on_change(
            lambda new: replies.change(
                stores_replies=new.store_replies, accepts_from_ms=new.accepts_from_ms
            )
        )
        return self._with_hooks(self._protection.replies.bound(replies.routes()))
