"""`downrange group`: consumer groups."""

import contextlib
from typing import Annotated

import typer

from downrange.admin.admin_client import AdminClient
from downrange.admin.errors import NothingThereError
from downrange.admin.groups import GroupMembers, GroupProgress, changed, is_user_group
from downrange.app.commands.frame import Call, DryRunOption, YesOption, cluster_command, new_app
from downrange.app.commands.output import Record, Row, Shown, Table
from downrange.app.commands.topic import BrokerOption, ClusterOption
from downrange.model.names import dlq_topic, retry_topic
from downrange.model.topics import SubscriptionGroupConfig
from downrange.protocol.versions import version_name

app = new_app("Consumer groups: settings, how far they are, who is in them.")

GroupArgument = Annotated[str, typer.Argument(metavar="GROUP", help="Name of the group.")]
LAG_COLUMNS = ("topic", "broker", "queue", "broker_offset", "consumer_offset", "lag",
               "consumed_until_ms")  # fmt: skip
CLIENT_COLUMNS = ("client_id", "address", "language", "version")


@cluster_command(app, "list")
async def list_groups(
    call: Call,
    everything: Annotated[
        bool, typer.Option("-a", "--all", help="Those of RocketMQ itself too.")
    ] = False,
) -> Shown:
    """All groups that brokers know."""
    async with call.admin() as admin:
        masters = (await admin.layout()).masters()
        configs = await admin.groups.configs(masters)
    rows: list[Row] = []
    for group, by_broker in configs.items():
        if everything or is_user_group(group):
            config = next(iter(by_broker.values()))
            rows.append(
                {
                    "group": group,
                    "brokers": sorted(by_broker),
                    "may_consume": all(one.consume_enable for one in by_broker.values()),
                    "retry_max_times": config.retry_max_times,
                }
            )
    return Table(("group", "brokers", "may_consume", "retry_max_times"), rows)


@cluster_command(app, "show")
async def show(call: Call, group: GroupArgument) -> Shown:
    """Settings of a group, how far it is in each topic, who is in it."""
    async with call.admin() as admin:
        masters = (await admin.layout()).masters()
        configs = await admin.groups.config(group, masters)
        progress = await admin.groups.progress(group, masters)
        members = await admin.groups.members(group, masters)
    brokers: list[Row] = [
        {
            "broker": broker,
            "may_consume": config.consume_enable,
            "broadcast": config.consume_broadcast_enable,
            "orderly": config.consume_message_orderly,
            "retry_max_times": config.retry_max_times,
            "retry_queues": config.retry_queue_nums,
        }
        for broker, config in configs.items()
    ]
    lag_by_topic: dict[str, int] = {}
    for queue, one in progress.queues.items():
        before = lag_by_topic.get(queue.topic, 0)
        lag_by_topic[queue.topic] = before + one.broker_offset - one.consumer_offset
    return Record(
        {
            "group": group,
            "online": members is not None,
            "consume_type": members.consume_type if members else None,
            "message_model": members.message_model if members else None,
            "lag": progress.lag,
            "consume_tps": progress.consume_tps,
        },
        {
            "brokers": Table(tuple(brokers[0]), brokers),
            "topics": Table(
                ("topic", "lag"),
                [{"topic": topic, "lag": lag} for topic, lag in sorted(lag_by_topic.items())],
            ),
            "clients": Table(CLIENT_COLUMNS, _clients(members)),
        },
    )


@cluster_command(app, "create")
async def create(
    call: Call,
    group: GroupArgument,
    retry_max_times: Annotated[
        int | None, typer.Option("--retries", help="Tries before a message is a dead letter.")
    ] = None,
    retry_queues: Annotated[int | None, typer.Option(help="Queues of its retry topic.")] = None,
    consume: Annotated[
        bool | None, typer.Option("--consume/--no-consume", help="Whether it may consume.")
    ] = None,
    broadcast: Annotated[
        bool | None, typer.Option("--broadcast/--no-broadcast", help="Whether it may broadcast.")
    ] = None,
    orderly: Annotated[
        bool | None, typer.Option("--orderly/--no-orderly", help="Whether pops keep the order.")
    ] = None,
    cluster: ClusterOption = None,
    broker: BrokerOption = None,
    dry_run: DryRunOption = False,
) -> Shown:
    """Create a group, or change what you name of one that is there."""
    rows: list[Row] = []
    async with call.admin() as admin:
        masters = (await admin.layout()).chosen(cluster, broker)
        known: dict[str, SubscriptionGroupConfig] = {}
        with contextlib.suppress(NothingThereError):
            known = await admin.groups.config(group, masters)
        for one in masters:
            config = changed(
                known.get(one.name) or SubscriptionGroupConfig(group_name=group),
                retry_max_times=retry_max_times,
                retry_queue_nums=retry_queues,
                consume_enable=consume,
                consume_broadcast_enable=broadcast,
                consume_message_orderly=orderly,
            )
            if not dry_run:
                await admin.groups.create(config, (one,))
            would = "would be " if dry_run else ""
            rows.append(
                {
                    "group": group,
                    "broker": one.name,
                    "action": would + ("changed" if one.name in known else "created"),
                    "may_consume": config.consume_enable,
                    "retry_max_times": config.retry_max_times,
                }
            )
    return Table(("group", "broker", "action", "may_consume", "retry_max_times"), rows)


@cluster_command(app, "delete")
async def delete(
    call: Call,
    group: GroupArgument,
    keep_offsets: Annotated[
        bool, typer.Option("--keep-offsets", help="Remember how far it was.")
    ] = False,
    cluster: ClusterOption = None,
    dry_run: DryRunOption = False,
    yes: YesOption = False,
) -> Shown:
    """Delete a group, its offsets, and its retry and dead-letter topics."""
    async with call.admin() as admin:
        layout = await admin.layout()
        masters = layout.chosen(cluster, None)
        configs = await admin.groups.config(group, masters)
        members = await admin.groups.members(group, masters)
        online = len(members.clients) if members is not None else 0
        topics = await admin.topics.names()
        own = [topic for topic in (retry_topic(group), dlq_topic(group)) if topic in topics]
        if not dry_run:
            warning = f" {online} clients are in it now." if online else ""
            call.confirm(f"Delete group {group} at {', '.join(configs)}?{warning}", yes=yes)
            await admin.groups.delete(group, masters, keep_offsets=keep_offsets)
            for topic in own:
                for name in {one.cluster for one in masters}:
                    await admin.topics.delete(topic, name)
    return Record(
        {
            "group": group,
            "action": "would be deleted" if dry_run else "deleted",
            "brokers": list(configs),
            "topics": own,
            "clients_online": online,
        }
    )


@cluster_command(app, "lag")
async def lag(
    call: Call,
    group: GroupArgument,
    topic: Annotated[str | None, typer.Option("-t", "--topic", help="Only this topic.")] = None,
) -> Shown:
    """How many messages wait for a group, queue by queue."""
    async with call.admin() as admin:
        progress = await _progress(admin, group, topic)
    return Table(LAG_COLUMNS, _lag_rows(progress))


@cluster_command(app, "connections")
async def connections(call: Call, group: GroupArgument) -> Shown:
    """Who is in a group now, and what they subscribe."""
    async with call.admin() as admin:
        masters = (await admin.layout()).masters()
        members = await admin.groups.members(group, masters)
        if members is None:
            _ = await admin.groups.config(group, masters)
    subscriptions: list[Row] = [
        {
            "topic": one.topic,
            "expression": one.sub_string or "*",
            "type": one.expression_type,
        }
        for _, one in sorted((members.subscriptions if members else {}).items())
    ]
    return Record(
        {
            "group": group,
            "online": members is not None,
            "consume_type": members.consume_type if members else None,
            "message_model": members.message_model if members else None,
            "consume_from_where": members.consume_from_where if members else None,
        },
        {
            "clients": Table(CLIENT_COLUMNS, _clients(members)),
            "subscriptions": Table(("topic", "expression", "type"), subscriptions),
        },
    )


async def _progress(admin: AdminClient, group: str, topic: str | None) -> GroupProgress:
    masters = (await admin.layout()).masters()
    progress = await admin.groups.progress(group, masters, topic=topic)
    if not progress.queues:
        _ = await admin.groups.config(group, masters)  # is there such a group at all?
    return progress


def _lag_rows(progress: GroupProgress) -> list[Row]:
    return [
        {
            "topic": queue.topic,
            "broker": queue.broker_name,
            "queue": queue.queue_id,
            "broker_offset": one.broker_offset,
            "consumer_offset": one.consumer_offset,
            "lag": one.broker_offset - one.consumer_offset,
            "consumed_until_ms": one.last_timestamp,
        }
        for queue, one in progress.queues.items()
    ]


def _clients(members: GroupMembers | None) -> list[Row]:
    return [
        {
            "client_id": client.client_id,
            "address": client.client_addr,
            "language": client.language,
            "version": version_name(client.version),
        }
        for _, client in sorted((members.clients if members else {}).items())
    ]
