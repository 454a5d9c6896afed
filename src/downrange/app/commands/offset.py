"""`downrange offset`: how far groups are, and moving them."""

from typing import Annotated

import typer

from downrange.admin.errors import WrongRequestError
from downrange.admin.offset_plan import ResetPlan, Target, TargetKind
from downrange.app.commands.frame import (
    EXIT_USAGE,
    Call,
    DryRunOption,
    Stop,
    YesOption,
    cluster_command,
    new_app,
)
from downrange.app.commands.group import GroupArgument
from downrange.app.commands.output import Form, Record, Row, Shown, Table
from downrange.app.commands.places import PLACES, parse_place
from downrange.app.commands.topic import TopicArgument
from downrange.runtime.clock import SystemClock

app = new_app("Offsets of groups: show, reset after a look at the effect, clone.")

PLAN_COLUMNS = ("broker", "queue", "min_offset", "max_offset", "now", "then", "skipped", "repeated")


@cluster_command(app, "show")
async def show(call: Call, group: GroupArgument, topic: TopicArgument) -> Shown:
    """What the queues of a topic hold, and how far a group is."""
    async with call.admin() as admin:
        states = await admin.offsets.states(group, topic)
    rows: list[Row] = [
        {
            "broker": state.queue.broker_name,
            "queue": state.queue.queue_id,
            "min_offset": state.min_offset,
            "max_offset": state.max_offset,
            "consumer_offset": state.consumer_offset,
            "lag": (
                None
                if state.consumer_offset is None
                else state.max_offset - max(state.consumer_offset, state.min_offset)
            ),
        }
        for state in states
    ]
    return Table(("broker", "queue", "min_offset", "max_offset", "consumer_offset", "lag"), rows)


@cluster_command(app, "reset")
async def reset(
    call: Call,
    group: GroupArgument,
    topic: TopicArgument,
    to: Annotated[
        str | None, typer.Option("--to", metavar="PLACE", help=f"Where to: {PLACES}.")
    ] = None,
    shift: Annotated[
        int | None, typer.Option("--shift", metavar="COUNT", help="So many on, or back if < 0.")
    ] = None,
    dry_run: DryRunOption = False,
    yes: YesOption = False,
) -> Shown | None:
    """Move a group; shows the effect first, and asks."""
    target = _target(to, shift)
    async with call.admin() as admin:
        masters = (await admin.layout()).masters()
        _ = await admin.groups.config(group, masters)
        plan = await admin.offsets.plan(group, topic, target)
        if dry_run:
            return _shown(plan, "would be reset")
        if not yes and call.form is Form.TABLE:
            call.show(_shown(plan, "to be reset"))
        call.confirm(
            f"Reset group {group} in topic {topic}? {plan.skipped} messages are skipped, "
            f"{plan.repeated} come again.",
            yes=yes,
        )
        await admin.offsets.apply(plan)
    if not yes and call.form is Form.TABLE:
        call.note("done")
        return None
    return _shown(plan, "reset")


@cluster_command(app, "clone")
async def clone(
    call: Call,
    source: Annotated[str, typer.Argument(metavar="FROM", help="The group to copy from.")],
    target: Annotated[str, typer.Argument(metavar="TO", help="The group that is to stand there.")],
    topic: TopicArgument,
    dry_run: DryRunOption = False,
) -> Shown:
    """Let a group stand where another one stands."""
    async with call.admin() as admin:
        masters = (await admin.layout()).masters()
        _ = await admin.groups.config(source, masters)
        before = await admin.offsets.states(target, topic)
        states = await admin.offsets.states(source, topic)
        if not dry_run:
            await admin.offsets.clone(source, target, topic, masters)
    rows: list[Row] = [
        {
            "broker": state.queue.broker_name,
            "queue": state.queue.queue_id,
            "now": old.consumer_offset,
            "then": state.consumer_offset,
        }
        for state, old in zip(states, before, strict=True)
    ]
    action = "would be cloned" if dry_run else "cloned"
    return Record(
        {"from": source, "to": target, "topic": topic, "action": action},
        {"queues": Table(("broker", "queue", "now", "then"), rows)},
    )


def _target(to: str | None, shift: int | None) -> Target:
    if (to is None) == (shift is None):
        raise Stop(EXIT_USAGE, f"give either --to ({PLACES}) or --shift COUNT")
    if shift is not None:
        return Target(TargetKind.SHIFT, shift)
    assert to is not None
    target = parse_place(to, SystemClock().wall_ms())
    if target.kind is TargetKind.SHIFT:
        raise WrongRequestError(
            f"--to {to} would count from the end; write --shift {target.value} to go back from "
            f"where the group is, or an offset or a time"
        )
    return target


def _shown(plan: ResetPlan, action: str) -> Record:
    rows: list[Row] = [
        {
            "broker": change.queue.broker_name,
            "queue": change.queue.queue_id,
            "min_offset": change.min_offset,
            "max_offset": change.max_offset,
            "now": change.now,
            "then": change.then,
            "skipped": change.skipped,
            "repeated": change.repeated,
        }
        for change in plan.changes
    ]
    return Record(
        {
            "group": plan.group,
            "topic": plan.topic,
            "action": action,
            "skipped": plan.skipped,
            "repeated": plan.repeated,
        },
        {"queues": Table(PLAN_COLUMNS, rows)},
    )
