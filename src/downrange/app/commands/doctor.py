"""`downrange doctor`: what is wrong with a cluster."""

from typing import Annotated

import typer

from downrange.app.commands.frame import EXIT_FINDINGS, Call, Stop, cluster_command, new_app
from downrange.app.commands.output import Form, Row, Shown, Table
from downrange.runtime.printable import printable

app = new_app("Finds the classical mistakes.")


@cluster_command(app, "doctor")
async def doctor(
    call: Call,
    topic: Annotated[
        list[str] | None, typer.Option("-t", "--topic", help="Only these; several times.")
    ] = None,
    group: Annotated[
        list[str] | None, typer.Option("-g", "--group", help="Only these; several times.")
    ] = None,
) -> Shown | None:
    """Look at name servers, brokers, topics and groups for the classical mistakes.

    Addresses that clients cannot reach, wrong ports, topics without a route and why, disks that
    are nearly full, clocks that are wrong, groups whose members want different things.
    """
    async with call.admin() as admin:
        checked = await admin.doctor.examine(topics=topic or (), groups=group or ())
    rows: list[Row] = [
        {
            "severity": one.severity.value,
            "check": one.check,
            "subject": one.subject,
            "text": one.text,
            "remedy": one.remedy,
        }
        for one in checked.findings
    ]
    call.note(
        f"cluster of {call.origin}, looked at: name servers {checked.name_servers}, brokers "
        f"{checked.brokers}, topics {checked.topics}, groups {checked.groups}; findings {len(rows)}"
    )
    if not rows:
        return None if call.form is Form.TABLE else Table((), [])
    if call.form is Form.TABLE:
        for row in rows:
            typer.echo(printable(f"{row['severity']}: {row['subject']} {row['text']}"))
            typer.echo(printable(f"  → {row['remedy']}"))
    else:
        call.show(Table((), rows))
    raise Stop(EXIT_FINDINGS)
