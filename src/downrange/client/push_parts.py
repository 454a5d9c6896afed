"""Builds the parts of a push consumer that has found its session; each gets only what it needs."""

from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass

from downrange.client.concurrent_consumption import ConcurrentConsumption
from downrange.client.consume_stats import ConsumeStats
from downrange.client.consume_trace import TraceConsumeHook
from downrange.client.consumer_settings import (
    DEFAULT_RECONSUME_TIMES,
    RECONSUME_FOR_EVER,
    START_BACK_MS,
    PushConsumerSettings,
)
from downrange.client.dead_letter import DeadLetterSending
from downrange.client.hooks import ConsumeHook, FilterHook
from downrange.client.invalid_messages import InvalidMessageHook, InvalidMessages
from downrange.client.listener_calls import C, ListenerCalls, S, Statuses
from downrange.client.listeners import (
    Batch,
    ConcurrentContext,
    ConsumeStatus,
    Listener,
    ListenerThreads,
    OrderlyContext,
    OrderlyListener,
    OrderlyStatus,
    caller,
)
from downrange.client.offset_store import (
    LocalOffsetStore,
    OffsetStore,
    RemoteOffsetStore,
    offsets_path,
)
from downrange.client.orderly_consumption import OrderlyConsumption
from downrange.client.process_queue import ProcessQueue
from downrange.client.pull_loop import PullLoop, PullParts
from downrange.client.pulling import Puller
from downrange.client.queue_calls import QueueCalls
from downrange.client.rebalance import Rebalance
from downrange.client.retry_sender import RetrySending
from downrange.client.send_back import RetrySender, SendBack
from downrange.client.session import Session
from downrange.client.starting_point import StartingPoint
from downrange.client.trace import Tracer
from downrange.filtering.tags import is_tag_type
from downrange.model.topics import MessageQueue
from downrange.protocol.bodies.heartbeat import Subscription
from downrange.runtime.blocking import BlockingRunner
from downrange.runtime.disk import Disk
from downrange.runtime.service import Supervisor

CONCURRENT = Statuses(ConsumeStatus, ConsumeStatus.CONSUME_SUCCESS, ConsumeStatus.RECONSUME_LATER)
IN_ORDER = Statuses(
    OrderlyStatus,
    OrderlyStatus.SUCCESS,
    OrderlyStatus.SUSPEND_CURRENT_QUEUE_A_MOMENT,
    OrderlyStatus.COMMIT,
)


@dataclass(frozen=True, slots=True)
class PushPlan:
    """What a push consumer was told before its start."""

    group: str
    settings: PushConsumerSettings
    listener: Listener | None
    orderly_listener: OrderlyListener | None
    threads: ListenerThreads
    subscriptions: dict[str, Subscription]
    consume_hooks: list[ConsumeHook]
    filter_hooks: list[FilterHook]
    retry_sender: RetrySender | None  # None: a little producer of its own
    invalid_hook: Callable[[], InvalidMessageHook | None]


@dataclass(frozen=True, slots=True)
class OffsetFiles:
    """Where a broadcasting consumer keeps its offsets."""

    disk: Disk
    blocking: BlockingRunner


@dataclass(slots=True)
class PushRun:
    """The parts of a push consumer from its start to its end."""

    session: Session
    supervisor: Supervisor
    stats: ConsumeStats
    calls: QueueCalls
    offsets: OffsetStore
    puller: Puller
    invalid_messages: InvalidMessages
    send_back: SendBack
    consumption: ConcurrentConsumption | OrderlyConsumption
    rebalance: Rebalance
    pulls: PullParts
    started_ms: int
    tracer: Tracer | None


def offset_store_of(
    session: Session,
    calls: QueueCalls,
    group: str,
    files: OffsetFiles,
    *,
    is_broadcasting: bool,
    folder: str,
) -> OffsetStore:
    """At the brokers for a group that shares, in a file for one that broadcasts."""
    if is_broadcasting:
        path = offsets_path(folder, session.client_id, group)
        return LocalOffsetStore(files.disk, path, files.blocking)
    return RemoteOffsetStore(calls, group)


def build_push(
    plan: PushPlan, session: Session, supervisor: Supervisor, files: OffsetFiles
) -> PushRun:
    """Put the parts together; nothing runs yet."""
    settings, group, clock = plan.settings, plan.group, session.clock
    is_in_order = plan.orderly_listener is not None
    stats = ConsumeStats(clock)
    calls = QueueCalls(session, group)
    offsets = offset_store_of(
        session,
        calls,
        group,
        files,
        is_broadcasting=settings.is_broadcasting,
        folder=settings.offsets_folder,
    )
    puller = Puller(session, calls, group)
    puller.filter_hooks = plan.filter_hooks
    send_back = SendBack(
        calls,
        group,
        max_reconsume_times=_reconsume_times(settings, is_in_order=is_in_order),
        namespace=session.settings.namespace,
        unit_mode=settings.unit_mode,
        sender=plan.retry_sender or RetrySending(session).send,
    )
    tracer = consume_tracer(session, plan.group, plan.consume_hooks)
    rebalance = _rebalance(plan, session, supervisor, calls, offsets)
    consumption = _consumption(plan, session, supervisor, stats, offsets, send_back, rebalance)
    invalid_messages = _invalid_messages(plan, session, supervisor, offsets)
    pulls = PullParts(
        group=group,
        settings=settings,
        is_in_order=is_in_order,
        puller=puller,
        invalid_messages=invalid_messages,
        consumption=consumption,
        offsets=offsets,
        stats=stats,
        clock=clock,
        subscription=plan.subscriptions.get,
        on_illegal=rebalance.repair,
        greet=lambda queue: _greet_broker_of(session, calls, queue),
        limits=settings.flow_limits,
    )

    def begin_pulling(queue: MessageQueue, held: ProcessQueue, offset: int) -> Callable[[], object]:
        loop = PullLoop(queue, held, offset, pulls)
        return supervisor.spawn_until(f"pull {queue.topic}/{queue.queue_id}", loop.run())

    rebalance.begin_pulling = begin_pulling
    return PushRun(
        session,
        supervisor,
        stats,
        calls,
        offsets,
        puller,
        invalid_messages,
        send_back,
        consumption,
        rebalance,
        pulls,
        clock.wall_ms(),
        tracer,
    )


def _invalid_messages(
    plan: PushPlan, session: Session, supervisor: Supervisor, offsets: OffsetStore
) -> InvalidMessages:
    return InvalidMessages(
        group=plan.group,
        policy=plan.settings.invalid_messages,
        is_broadcasting=plan.settings.is_broadcasting,
        hook=plan.invalid_hook,
        threads=plan.threads,
        sender=plan.retry_sender or DeadLetterSending(session).send,
        supervisor=supervisor,
        settled=lambda queue, _, offset: offsets.update(queue, offset, increase_only=True),
    )


def consume_tracer(session: Session, group: str, hooks: list[ConsumeHook]) -> Tracer | None:
    """What traces a group, as one more of its hooks, if the client is told to trace."""
    if not session.settings.trace:
        return None
    tracer = Tracer(session, group, session.settings.trace_topic)
    hooks.append(TraceConsumeHook(tracer, session.unique_ids))
    return tracer


def _rebalance(
    plan: PushPlan,
    session: Session,
    supervisor: Supervisor,
    calls: QueueCalls,
    offsets: OffsetStore,
) -> Rebalance:
    settings, clock = plan.settings, session.clock
    where_ms = settings.consume_timestamp_ms
    starting_point = StartingPoint(
        calls,
        offsets,
        plan.group,
        settings.consume_from_where,
        clock.wall_ms() - START_BACK_MS if where_ms is None else where_ms,
    )
    return Rebalance(
        group=plan.group,
        client_id=session.client_id,
        strategy=settings.strategy,
        is_broadcasting=settings.is_broadcasting,
        is_in_order=plan.orderly_listener is not None,
        subscriptions=plan.subscriptions,
        readable_queues=session.routes.subscribe_queues,
        calls=calls,
        offsets=offsets,
        find_start=starting_point.find,
        greet=session.heartbeats.send,
        clock=clock,
        supervisor=supervisor,
    )


def _consumption(
    plan: PushPlan,
    session: Session,
    supervisor: Supervisor,
    stats: ConsumeStats,
    offsets: OffsetStore,
    send_back: SendBack,
    rebalance: Rebalance,
) -> ConcurrentConsumption | OrderlyConsumption:
    settings, clock = plan.settings, session.clock
    if plan.orderly_listener is not None:
        in_order: ListenerCalls[OrderlyContext, OrderlyStatus] = _listener_calls(
            caller(plan.orderly_listener, plan.threads), IN_ORDER, plan, session, stats
        )
        return OrderlyConsumption(
            in_order,
            workers_max=settings.consume_threads_max,
            batch_size=settings.consume_batch_size,
            is_broadcasting=settings.is_broadcasting,
            max_reconsume_times=settings.max_reconsume_times,
            suspend_ms=settings.suspend_current_queue_ms,
            clock=clock,
            stats=stats,
            offsets=offsets,
            send_back=send_back,
            supervisor=supervisor,
            lock=rebalance.lock,
        )
    assert plan.listener is not None
    concurrent: ListenerCalls[ConcurrentContext, ConsumeStatus] = _listener_calls(
        caller(plan.listener, plan.threads), CONCURRENT, plan, session, stats
    )
    return ConcurrentConsumption(
        concurrent,
        workers_max=settings.consume_threads_max,
        batch_size=settings.consume_batch_size,
        is_broadcasting=settings.is_broadcasting,
        clock=clock,
        stats=stats,
        offsets=offsets,
        send_back=send_back,
        supervisor=supervisor,
    )


def _listener_calls(
    call: Callable[[Batch, C], Awaitable[S | None]],
    statuses: Statuses[S],
    plan: PushPlan,
    session: Session,
    stats: ConsumeStats,
) -> ListenerCalls[C, S]:
    calls = ListenerCalls(
        call,
        statuses,
        group=plan.group,
        namespace=session.settings.namespace,
        clock=session.clock,
        stats=stats,
        timeout_s=plan.settings.consume_timeout_min * 60,
    )
    calls.hooks = plan.consume_hooks
    return calls


async def check_expressions(
    session: Session, group: str, subscriptions: Iterable[Subscription]
) -> None:
    """Have a broker compile what is not plain tags; better once now than at every pull."""
    for subscription in subscriptions:
        address = session.routes.any_address(subscription.topic, session.chance)
        if address is not None and not is_tag_type(subscription.expression_type):
            await session.calls.check_client(address, session.client_id, group, subscription)


def _reconsume_times(settings: PushConsumerSettings, *, is_in_order: bool) -> int:
    if settings.max_reconsume_times is not None:
        return settings.max_reconsume_times
    return RECONSUME_FOR_EVER if is_in_order else DEFAULT_RECONSUME_TIMES


async def _greet_broker_of(session: Session, calls: QueueCalls, queue: MessageQueue) -> None:
    """A broker that does not know us, or an older us, is told before it is asked again."""
    address = await calls.master(queue)
    master = session.routes.master_address(session.routes.broker_of(queue))
    await session.heartbeats.send(address, is_master=address == master)
