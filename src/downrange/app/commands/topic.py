"""`downrange topic`: topics of a cluster."""

from typing import Annotated

import typer

from downrange.admin.errors import NothingThereError, WrongRequestError
from downrange.admin.layout import BrokerAddress
from downrange.admin.topics import QUEUE_NUMS, TopicWish, kind_of
from downrange.app.commands.frame import Call, DryRunOption, YesOption, cluster_command, new_app
from downrange.app.commands.output import Record, Row, Shown, Table
from downrange.model.topics import Permission, TopicConfig

app = new_app("Topics: list, show, create, delete, where they are, what they hold.")

TopicArgument = Annotated[str, typer.Argument(metavar="TOPIC", help="Name of the topic.")]
ClusterOption = Annotated[str | None, typer.Option("-c", "--cluster", help="Only in this cluster.")]
BrokerOption = Annotated[str | None, typer.Option("-b", "--broker", help="Only at this broker.")]
_PERMISSIONS = {"rw": Permission.READ_WRITE, "r": Permission.READ, "w": Permission.WRITE}


@cluster_command(app, "list")
async def list_topics(
    call: Call,
    everything: Annotated[
        bool, typer.Option("-a", "--all", help="System, retry and dead-letter topics too.")
    ] = False,
) -> Shown:
    """The names of all topics."""
    async with call.admin() as admin:
        names = await admin.topics.names()
        owned = (await admin.layout()).own_topics
    rows = [{"topic": name, "kind": kind_of(name, owned)} for name in names]
    return Table(("topic", "kind"), [row for row in rows if everything or row["kind"] == "normal"])


@cluster_command(app, "show")
async def show(call: Call, topic: TopicArgument) -> Shown:
    """Settings of a topic at each broker, and the groups that consume it."""
    async with call.admin() as admin:
        state = await admin.topics.show(topic)
        owned = (await admin.layout()).own_topics
    brokers: list[Row] = [
        {
            "broker": broker,
            "read_queues": config.read_queue_nums,
            "write_queues": config.write_queue_nums,
            "permission": Permission(config.perm).text,
            "order": config.order,
            "attributes": config.attributes,
        }
        for broker, config in state.configs.items()
    ]
    columns = ("broker", "read_queues", "write_queues", "permission", "order", "attributes")
    return Record(
        {"topic": topic, "kind": kind_of(topic, owned), "groups": list(state.groups)},
        {"brokers": Table(columns, brokers)},
    )


@cluster_command(app, "create")
async def create(
    call: Call,
    topic: TopicArgument,
    queues: Annotated[
        int, typer.Option("-q", "--queues", help="Queues at each broker.")
    ] = QUEUE_NUMS,
    read_queues: Annotated[
        int | None, typer.Option(help="Queues to read, if others than to write.")
    ] = None,
    permission: Annotated[str, typer.Option(metavar="rw|r|w", help="What may be done.")] = "rw",
    order: Annotated[bool, typer.Option("--order", help="A topic in global order.")] = False,
    attribute: Annotated[
        list[str] | None,
        typer.Option("--attribute", metavar="+KEY=VALUE", help="Or -KEY; several times."),
    ] = None,
    cluster: ClusterOption = None,
    broker: BrokerOption = None,
    dry_run: DryRunOption = False,
) -> Shown:
    """Create a topic, or change one that is there."""
    if permission not in _PERMISSIONS:
        raise WrongRequestError(f"--permission is rw, r or w, not {permission!r}")
    wish = TopicWish(
        topic=topic,
        read_queue_nums=queues if read_queues is None else read_queues,
        write_queue_nums=queues,
        permission=_PERMISSIONS[permission],
        order=order,
        attributes=tuple(attribute or ()),
    )
    async with call.admin() as admin:
        masters = (await admin.layout()).chosen(cluster, broker)
        try:
            known = (await admin.topics.show(topic)).configs
        except NothingThereError:
            known = {}
        if not dry_run:
            await admin.topics.create(wish, masters)
            await admin.topics.wait_for_route(topic, {one.name for one in masters})
    return _created(wish, masters, dict(known), dry_run=dry_run)


@cluster_command(app, "delete")
async def delete(
    call: Call,
    topic: TopicArgument,
    cluster: ClusterOption = None,
    dry_run: DryRunOption = False,
    yes: YesOption = False,
) -> Shown:
    """Delete a topic with all its messages."""
    async with call.admin() as admin:
        route = await admin.topics.route(topic)
        clusters = sorted({data.cluster or "" for data in route.broker_datas})
        if cluster is None:
            if len(clusters) != 1:
                raise WrongRequestError(
                    f"topic {topic!r} is in several clusters; choose one with -c: "
                    f"{', '.join(clusters)}"
                )
            (cluster,) = clusters
        stats = await admin.topics.stats(topic)
        count = sum(one.max_offset - one.min_offset for one in stats.values())
        brokers = sorted({queue.broker_name for queue in stats})
        if not dry_run:
            call.confirm(
                f"Delete topic {topic} with {count} messages at {', '.join(brokers)}?", yes=yes
            )
            await admin.topics.delete(topic, cluster)
    action = "would be deleted" if dry_run else "deleted"
    return Record({"topic": topic, "action": action, "messages": count, "brokers": brokers})


@cluster_command(app, "route")
async def route(call: Call, topic: TopicArgument) -> Shown:
    """The brokers that have a topic, as the name servers tell clients."""
    async with call.admin() as admin:
        found = await admin.topics.route(topic)
    queues = {data.broker_name: data for data in found.queue_datas}
    rows: list[Row] = []
    for data in sorted(found.broker_datas, key=lambda one: one.broker_name):
        for broker_id, address in sorted(data.broker_addrs.items()):
            mine = queues.get(data.broker_name)
            rows.append(
                {
                    "cluster": data.cluster,
                    "broker": data.broker_name,
                    "id": broker_id,
                    "address": address,
                    "read_queues": mine.read_queue_nums if mine else 0,
                    "write_queues": mine.write_queue_nums if mine else 0,
                    "permission": Permission(mine.perm).text if mine else "---",
                }
            )
    columns = ("cluster", "broker", "id", "address", "read_queues", "write_queues", "permission")
    return Table(columns, rows)


@cluster_command(app, "stats")
async def stats(call: Call, topic: TopicArgument) -> Shown:
    """What each queue holds."""
    async with call.admin() as admin:
        found = await admin.topics.stats(topic)
    rows: list[Row] = [
        {
            "broker": queue.broker_name,
            "queue": queue.queue_id,
            "min_offset": one.min_offset,
            "max_offset": one.max_offset,
            "messages": one.max_offset - one.min_offset,
            "newest_ms": one.last_update_timestamp,
        }
        for queue, one in found.items()
    ]
    columns = ("broker", "queue", "min_offset", "max_offset", "messages", "newest_ms")
    return Table(columns, rows)


def _created(
    wish: TopicWish,
    masters: tuple[BrokerAddress, ...],
    known: dict[str, TopicConfig],
    *,
    dry_run: bool,
) -> Shown:
    would = "would be " if dry_run else ""
    rows: list[Row] = [
        {
            "topic": wish.topic,
            "broker": one.name,
            "action": would + ("changed" if one.name in known else "created"),
            "read_queues": wish.read_queue_nums,
            "write_queues": wish.write_queue_nums,
            "permission": wish.permission.text,
        }
        for one in masters
    ]
    columns = ("topic", "broker", "action", "read_queues", "write_queues", "permission")
    return Table(columns, rows)
