"""`downrange broker show|config`: brokers that are running."""

from typing import Annotated

import typer

from downrange.admin.errors import NothingThereError, WrongRequestError
from downrange.app.commands.frame import Call, DryRunOption, cluster_command, new_app
from downrange.app.commands.output import Record, Row, Shown, Table

app = new_app("Brokers that are running: what they do, and their settings.")
config = new_app("Settings of a running broker.")
app.add_typer(config, name="config")

BrokerArgument = Annotated[str, typer.Argument(metavar="BROKER", help="Name of the broker.")]


@cluster_command(app, "show")
async def show(call: Call, broker: BrokerArgument) -> Shown:
    """Everything that a broker says about itself, under RocketMQ's names."""
    async with call.admin() as admin:
        one = (await admin.layout()).master(broker)
        facts = await admin.brokers.facts(one.address)
    return Record(
        {"broker": one.name, "cluster": one.cluster, "address": one.address, **facts.table}
    )


@cluster_command(config, "get")
async def get(
    call: Call,
    broker: BrokerArgument,
    keys: Annotated[
        list[str] | None, typer.Argument(metavar="KEY", help="Only these; else all.")
    ] = None,
) -> Shown:
    """Settings of a broker."""
    async with call.admin() as admin:
        one = (await admin.layout()).master(broker)
        found = await admin.brokers.config(one.address)
    missing = [key for key in keys or () if key not in found]
    if missing:
        raise NothingThereError(f"broker {broker} has no setting {', '.join(missing)}")
    rows: list[Row] = [{"key": key, "value": found[key]} for key in keys or found]
    return Table(("key", "value"), rows)


@cluster_command(config, "set")
async def set_config(
    call: Call,
    broker: BrokerArgument,
    changes: Annotated[list[str], typer.Argument(metavar="KEY=VALUE", help="New settings.")],
    dry_run: DryRunOption = False,
) -> Shown:
    """Change settings of a running broker."""
    wanted: dict[str, str] = {}
    for change in changes:
        key, equals, value = change.partition("=")
        if not equals or not key:
            raise WrongRequestError(f"{change!r} is not KEY=VALUE")
        wanted[key] = value
    async with call.admin() as admin:
        one = (await admin.layout()).master(broker)
        before = await admin.brokers.config(one.address)
        unknown = [key for key in wanted if key not in before]
        if unknown:  # an Apache broker would say yes and forget it
            raise NothingThereError(f"broker {broker} has no setting {', '.join(unknown)}")
        remark = ""
        if not dry_run:
            remark = await admin.brokers.change_config(one.address, wanted)
    if remark:
        call.note(remark)
    rows: list[Row] = [
        {
            "key": key,
            "before": before.get(key),
            "value": value,
            "action": "would be set" if dry_run else "set",
        }
        for key, value in wanted.items()
    ]
    return Table(("key", "before", "value", "action"), rows)
