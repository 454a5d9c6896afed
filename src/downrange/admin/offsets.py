"""Offsets of groups: shown, moved after a look at the effect, copied."""

from collections.abc import Iterable, Sequence
from typing import Final

from downrange.admin.brokers import Brokers
from downrange.admin.errors import NothingThereError, WrongRequestError
from downrange.admin.groups import Groups
from downrange.admin.layout import BrokerAddress
from downrange.admin.offset_plan import (
    QueueChange,
    QueueState,
    ResetPlan,
    Target,
    TargetKind,
    plan_reset,
)
from downrange.admin.requests import Requests, read_header
from downrange.admin.topics import Topics, masters_of
from downrange.client.broker_calls import BrokerCalls
from downrange.client.errors import UnknownBrokerError
from downrange.client.routes import STATIC_BROKER_PREFIX, subscribe_queues
from downrange.model.topics import MessageQueue
from downrange.protocol.headers.admin_group import CloneGroupOffsetRequest
from downrange.protocol.headers.broker_to_client import ResetOffsetRequest
from downrange.protocol.headers.offset import OffsetResponse, QueryConsumerOffsetRequest
from downrange.protocol.request_codes import RequestCode
from downrange.protocol.response_codes import ResponseCode

SERVER_SIDE: Final = "useServerSideResetOffset"
_BY_TIME: Final = {TargetKind.EARLIEST: 0, TargetKind.LATEST: -1}


class Offsets:
    """Looks at queues one by one, so that a plan shows what will be there."""

    def __init__(
        self,
        requests: Requests,
        calls: BrokerCalls,
        topics: Topics,
        groups: Groups,
        brokers: Brokers,
    ) -> None:
        self._requests = requests
        self._calls = calls
        self._topics = topics
        self._groups = groups
        self._brokers = brokers

    async def states(
        self, group: str, topic: str, *, time_ms: int | None = None
    ) -> list[QueueState]:
        """What the queues of a topic hold and how far a group is in each."""
        route = await self._topics.route(topic)
        addresses = {one.name: one.address for one in masters_of(route)}
        found = []
        for queue in subscribe_queues(topic, route):
            if queue.broker_name.startswith(STATIC_BROKER_PREFIX):
                raise WrongRequestError(f"{topic!r} is a static topic, whose queues move; not here")
            address = addresses.get(queue.broker_name)
            if address is None:  # half of a group must not be moved without a word
                raise UnknownBrokerError(
                    f"broker {queue.broker_name!r}, which has queues of topic {topic!r}, has no "
                    f"living master; start it first"
                )
            found.append(await self._state(address, group, queue, time_ms))
        if not found:
            raise NothingThereError(f"no queue of topic {topic!r} can be read")
        return found

    async def plan(self, group: str, topic: str, target: Target) -> ResetPlan:
        """What a reset would do; changes nothing."""
        time_ms = target.value if target.kind is TargetKind.TIME else None
        return plan_reset(group, topic, target, await self.states(group, topic, time_ms=time_ms))

    async def apply(self, plan: ResetPlan) -> None:
        """Do what a plan says. Consumers that are online go on at the new place."""
        route = await self._topics.route(plan.topic)
        masters = masters_of(route)
        is_online = await self._groups.members(plan.group, masters) is not None
        by_broker: dict[str, list[QueueChange]] = {}
        for change in plan.changes:
            by_broker.setdefault(change.queue.broker_name, []).append(change)
        for one in masters:
            if one.name in by_broker:
                await self._apply_at(one, plan, by_broker[one.name], is_online=is_online)

    async def clone(
        self, source: str, target: str, topic: str, masters: Sequence[BrokerAddress]
    ) -> None:
        """Let a group stand where another one stands in a topic."""
        header = CloneGroupOffsetRequest(
            src_group=source, dest_group=target, topic=topic, offline=True
        )
        for one in masters:
            await self._requests.ask(one.address, RequestCode.CLONE_GROUP_OFFSET, header)

    # --- inside ----------------------------------------------------------------------------

    async def _state(
        self, address: str, group: str, queue: MessageQueue, time_ms: int | None
    ) -> QueueState:
        calls = self._calls
        low = await calls.min_offset(address, queue)
        high = await calls.max_offset(address, queue)
        now = await self._committed(address, group, queue)
        at_time = None
        if time_ms is not None:
            at_time = await calls.search_offset(address, queue, time_ms)
        return QueueState(queue, low, high, now, at_time)

    async def _committed(self, address: str, group: str, queue: MessageQueue) -> int | None:
        """How far a group is; None if it never was there, which consumers are not told so."""
        header = QueryConsumerOffsetRequest(
            consumer_group=group,
            topic=queue.topic,
            queue_id=queue.queue_id,
            set_zero_if_not_found=False,
        )
        answer = await self._requests.ask(
            address,
            RequestCode.QUERY_CONSUMER_OFFSET,
            header,
            also=(ResponseCode.QUERY_NOT_FOUND,),
        )
        if answer.code == ResponseCode.QUERY_NOT_FOUND:
            return None
        return read_header(OffsetResponse, answer).offset

    async def _apply_at(
        self, broker: BrokerAddress, plan: ResetPlan, changes: list[QueueChange], *, is_online: bool
    ) -> None:
        settings = await self._brokers.config(broker.address)
        if settings.get(SERVER_SIDE) == "true":
            await self._reset_in_broker(broker.address, plan, changes)
        elif not is_online:
            # Nobody holds offsets in memory, so what the broker has is all there is.
            for change in changes:
                await self._calls.update_consumer_offset(
                    broker.address, plan.group, change.queue, change.then
                )
        else:
            await self._reset_at_clients(broker, plan)

    async def _reset_in_broker(
        self, address: str, plan: ResetPlan, changes: Iterable[QueueChange]
    ) -> None:
        for change in changes:
            header = ResetOffsetRequest(
                group=plan.group,
                topic=plan.topic,
                queue_id=change.queue.queue_id,
                offset=change.then,
                timestamp=0,
                is_force=True,
            )
            await self._requests.ask(address, RequestCode.INVOKE_BROKER_TO_RESET_OFFSET, header)

    async def _reset_at_clients(self, broker: BrokerAddress, plan: ResetPlan) -> None:
        """The older way knows times only, and the broker tells its clients."""
        target = plan.target
        time_ms = target.value if target.kind is TargetKind.TIME else _BY_TIME.get(target.kind)
        if time_ms is None:
            raise WrongRequestError(
                f"broker {broker.name} resets groups that are online by time only; stop the "
                f"consumers of {plan.group!r} first, or name a time"
            )
        header = ResetOffsetRequest(
            group=plan.group, topic=plan.topic, timestamp=time_ms, is_force=True
        )
        await self._requests.ask(broker.address, RequestCode.INVOKE_BROKER_TO_RESET_OFFSET, header)
