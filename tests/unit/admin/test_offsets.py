"""Moving a group: the plan says what will be, and then it is so."""

from pathlib import Path

import pytest
from unit.admin.operating import admin_of
from unit.broker.one_broker import pass_time
from unit.client.consuming import Seen, Site, until

from downrange.admin.errors import NothingThereError, WrongRequestError
from downrange.admin.offset_plan import QueueState, Target, TargetKind, plan_reset
from downrange.broker.settings import BrokerSettings
from downrange.model.topics import MessageQueue, SubscriptionGroupConfig
from downrange.testing.virtual_time import run

QUEUE = MessageQueue("orders", "b1", 0)


@pytest.mark.parametrize(
    ("target", "now", "then", "skipped", "repeated"),
    [
        (Target(TargetKind.EARLIEST), 30, 10, 0, 20),
        (Target(TargetKind.LATEST), 30, 50, 20, 0),
        (Target(TargetKind.LATEST), None, 50, 0, 0),
        (Target(TargetKind.LATEST), 3, 50, 40, 0),  # what is gone already is not skipped
        (Target(TargetKind.OFFSET, 20), 30, 20, 0, 10),
        (Target(TargetKind.OFFSET, 0), 30, 10, 0, 20),
        (Target(TargetKind.OFFSET, 99), 30, 50, 20, 0),
        (Target(TargetKind.SHIFT, -5), 30, 25, 0, 5),
        (Target(TargetKind.SHIFT, 5), 30, 35, 5, 0),
        (Target(TargetKind.TIME, 123), 30, 44, 14, 0),
        (Target(TargetKind.EARLIEST), 60, 10, 0, 40),  # beyond the end: only what is there
    ],
)
def test_a_plan_lies_within_the_queue_and_counts_the_effect(
    target: Target, now: int | None, then: int, skipped: int, repeated: int
) -> None:
    plan = plan_reset("g", "orders", target, [QueueState(QUEUE, 10, 50, now, 44)])
    (change,) = plan.changes
    assert (change.now, change.then) == (now, then)
    assert (plan.skipped, plan.repeated) == (skipped, repeated)


def test_a_shift_needs_an_offset_to_start_from() -> None:
    with pytest.raises(WrongRequestError, match="cannot be shifted"):
        plan_reset("g", "orders", Target(TargetKind.SHIFT, 1), [QueueState(QUEUE, 0, 5, None)])


@pytest.mark.parametrize("server_side", [True, False])
def test_a_group_that_is_offline_is_moved_as_planned(tmp_path: Path, *, server_side: bool) -> None:
    async def main() -> None:
        settings = BrokerSettings(server_side_reset=server_side)
        async with Site(tmp_path, broker_settings=settings) as site, admin_of(site) as admin:
            await site.create("orders", 2)
            await site.send_many("orders", 20, queues=2)
            masters = (await admin.layout()).masters()
            await admin.groups.create(SubscriptionGroupConfig(group_name="g"), masters)
            for target, wanted in (
                (Target(TargetKind.LATEST), [10, 10]),
                (Target(TargetKind.OFFSET, 4), [4, 4]),
                (Target(TargetKind.SHIFT, 3), [7, 7]),
                (Target(TargetKind.EARLIEST), [0, 0]),
            ):
                plan = await admin.offsets.plan("g", "orders", target)
                assert [change.then for change in plan.changes] == wanted
                await admin.offsets.apply(plan)
                states = await admin.offsets.states("g", "orders")
                assert [state.consumer_offset for state in states] == wanted
            await admin.offsets.clone("g", "h", "orders", masters)
            states = await admin.offsets.states("h", "orders")
            assert [state.consumer_offset for state in states] == [0, 0]

    run(main())


def test_a_time_is_looked_up_in_every_queue(tmp_path: Path) -> None:
    async def main() -> None:
        async with Site(tmp_path) as site, admin_of(site) as admin:
            await site.create("orders")
            await site.send_many("orders", 3)
            await pass_time(60)
            then_ms = site.clock.wall_ms()
            await site.send_many("orders", 4)
            plan = await admin.offsets.plan("g", "orders", Target(TargetKind.TIME, then_ms))
            assert [change.then for change in plan.changes] == [3]

    run(main())


def test_consumers_that_are_online_go_on_at_the_new_place(tmp_path: Path) -> None:
    async def main() -> None:
        async with Site(tmp_path) as site, admin_of(site) as admin:
            await site.create("orders")
            await site.send_many("orders", 5)
            seen = Seen()
            consumer = site.consumer("g")
            consumer.subscribe("orders", "*")
            consumer.listen(seen)
            await consumer.start()
            await until(lambda: len(seen.bodies) == 5)
            await pass_time(12)
            plan = await admin.offsets.plan("g", "orders", Target(TargetKind.OFFSET, 3))
            assert plan.repeated == 2
            await admin.offsets.apply(plan)
            await until(lambda: len(seen.bodies) == 7)
            assert seen.bodies[5:] == [b"3", b"4"]
            await consumer.shutdown()

    run(main())


def test_a_broker_that_tells_its_clients_moves_by_time_only(tmp_path: Path) -> None:
    async def main() -> None:
        settings = BrokerSettings(server_side_reset=False)
        async with Site(tmp_path, broker_settings=settings) as site, admin_of(site) as admin:
            await site.create("orders")
            await site.send_many("orders", 5)
            seen = Seen()
            consumer = site.consumer("g")
            consumer.subscribe("orders", "*")
            consumer.listen(seen)
            await consumer.start()
            await until(lambda: len(seen.bodies) == 5)
            await pass_time(12)
            plan = await admin.offsets.plan("g", "orders", Target(TargetKind.OFFSET, 3))
            with pytest.raises(WrongRequestError, match="by time only; stop the consumers"):
                await admin.offsets.apply(plan)
            await admin.offsets.apply(
                await admin.offsets.plan("g", "orders", Target(TargetKind.EARLIEST))
            )
            await until(lambda: len(seen.bodies) == 10)
            await consumer.shutdown()

    run(main())


def test_offsets_of_a_topic_that_is_not_there(tmp_path: Path) -> None:
    async def main() -> None:
        async with Site(tmp_path) as site, admin_of(site) as admin:
            with pytest.raises(NothingThereError, match="does not exist"):
                await admin.offsets.states("g", "nix")

    run(main())
