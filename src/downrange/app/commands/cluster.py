"""`downrange cluster`: the brokers of a cluster at a glance."""

from typing import Annotated

import typer

from downrange.app.commands.frame import Call, cluster_command, new_app
from downrange.app.commands.output import Shown, Table, Value
from downrange.client.errors import RocketMQError

app = new_app("The brokers of a cluster.")
COLUMNS = ("cluster", "broker", "id", "address", "state", "version", "put_tps", "get_tps",
           "disk_ratio", "uptime_s")  # fmt: skip


@app.callback()
def _noun() -> None:
    """Keeps the word `show`, though there is only one."""


@cluster_command(app, "show")
async def show(
    call: Call,
    cluster: Annotated[str | None, typer.Option("-c", "--cluster", help="Only this one.")] = None,
) -> Shown:
    """Every broker that the name servers know, and what it is doing."""
    rows: list[dict[str, Value]] = []
    async with call.admin() as admin:
        layout = await admin.layout()
        if cluster is not None:
            _ = layout.chosen(cluster, None)
        for one in layout.brokers:
            if cluster not in {None, one.cluster}:
                continue
            row: dict[str, Value] = {
                "cluster": one.cluster,
                "broker": one.name,
                "id": one.broker_id,
                "address": one.address,
            }
            try:
                facts = await admin.brokers.facts(one.address)
            except RocketMQError as error:
                row["state"] = "unreachable"
                row["error"] = str(error)
            else:
                row["state"] = "master" if one.is_master else "slave"
                row |= {
                    "version": facts.version,
                    "put_tps": facts.put_tps,
                    "get_tps": facts.get_tps,
                    "disk_ratio": facts.disk_ratio,
                    "uptime_s": facts.uptime_s,
                }
            rows.append(row)
    return Table(COLUMNS, rows)
