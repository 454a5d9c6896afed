"""`downrange context`: named clusters."""

import os
from pathlib import Path
from typing import Annotated

import msgspec
import typer

from downrange.app.commands.contexts import (
    Cluster,
    Context,
    ContextError,
    ContextFile,
    Contexts,
    with_tls,
)
from downrange.app.commands.frame import EXIT_USAGE, Stop, local_command, new_app
from downrange.app.commands.output import Form, Record, Shown, Table
from downrange.app.commands.tls_options import (
    TlsCaOption,
    TlsCertOption,
    TlsKeyOption,
    TlsOption,
    TlsServerNameOption,
    TlsVerifyOption,
)
from downrange.app.tls_choice import TlsChoice
from downrange.client.errors import RocketMQError

app = new_app("Named clusters: add, use, list, remove.")

NameArgument = Annotated[str, typer.Argument(metavar="NAME", help="How you call the cluster.")]


@local_command(app, "add")
def add(
    form: Form,
    name: NameArgument,
    name_servers: Annotated[
        str, typer.Option("-n", "--name-servers", metavar="HOST:PORT", help="Several with ;.")
    ],
    access_key: Annotated[str, typer.Option(help="Who you are, if the brokers ask.")] = "",
    secret_key: Annotated[str, typer.Option(help="Kept in a file that only you can read.")] = "",
    tls: TlsOption = None,
    tls_ca: TlsCaOption = None,
    tls_cert: TlsCertOption = None,
    tls_key: TlsKeyOption = None,
    tls_key_password: Annotated[
        str | None, typer.Option(metavar="TEXT", help="Kept like the secret key.")
    ] = None,
    tls_server_name: TlsServerNameOption = None,
    tls_verify: TlsVerifyOption = None,
    use: Annotated[bool, typer.Option("--use/--no-use", help="Use it from now on.")] = True,
) -> Shown:
    """Remember a cluster under a name; one of the same name is replaced."""
    del form
    choice = TlsChoice(
        tls=tls,
        ca_file=_absolute(tls_ca),
        certificate_file=_absolute(tls_cert),
        key_file=_absolute(tls_key),
        key_password=tls_key_password,
        server_name=tls_server_name,
        verify=tls_verify,
    )
    context = Context(name_servers=name_servers, access_key=access_key, secret_key=secret_key)
    try:
        context = with_tls(context, choice)
        checked = Cluster(context, "-n").settings(1.0)
        if checked.tls is not None:
            _ = checked.tls.context()
    except RocketMQError as error:
        raise Stop(EXIT_USAGE, str(error)) from error
    contexts = _contexts()
    file = contexts.load()
    current = name if use or file.current is None else file.current
    contexts.save(ContextFile(current=current, contexts={**file.contexts, name: context}))
    return Record({"context": name, "name_servers": name_servers, "in_use": current == name})


@local_command(app, "use")
def use(form: Form, name: NameArgument) -> Shown:
    """Use a cluster from now on."""
    del form
    contexts = _contexts()
    found = contexts.find(name)
    contexts.save(msgspec.structs.replace(contexts.load(), current=name))
    return Record({"context": name, "name_servers": found.name_servers, "in_use": True})


@local_command(app, "list")
def list_contexts(form: Form) -> Shown:
    """All that are remembered; secrets are not shown."""
    del form
    file = _contexts().load()
    return Table(
        ("context", "name_servers", "in_use", "tls", "has_keys"),
        [
            {
                "context": name,
                "name_servers": context.name_servers,
                "in_use": name == file.current,
                "tls": context.tls,
                "has_keys": bool(context.access_key),
            }
            for name, context in sorted(file.contexts.items())
        ],
    )


@local_command(app, "remove")
def remove(form: Form, name: NameArgument) -> Shown:
    """Forget a cluster."""
    del form
    contexts = _contexts()
    _ = contexts.find(name)
    file = contexts.load()
    left = {other: context for other, context in file.contexts.items() if other != name}
    current = None if file.current == name else file.current
    contexts.save(ContextFile(current=current, contexts=left))
    return Record({"removed": name, "in_use": current})


def _absolute(path: str | None) -> str | None:
    """Commands run in any folder."""
    return None if path is None else str(Path(path).expanduser().absolute())


def _contexts() -> Contexts:
    try:
        return Contexts.of_user(os.environ)
    except RuntimeError as error:  # no home directory
        raise ContextError(f"{error}; set DOWNRANGE_CONFIG_DIR") from None
