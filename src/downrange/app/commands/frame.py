"""What every command is built on: its options, its run, its exit code.

    app = new_app("list, show, create, delete topics")

    @cluster_command(app, "list")
    async def list_topics(call: Call, ...) -> Shown: ...

A command is a coroutine. It gets a `Call` first and returns what is to be printed. The options that
say which cluster and how to print are added here. What a user did wrong is one line and an exit
code, never a traceback.
"""

import asyncio
import contextlib
import functools
import importlib
import inspect
import logging
import os
import sys
from collections.abc import Callable, Collection, Coroutine, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Concatenate, Final, ParamSpec, Protocol, cast, get_type_hints

import typer
from typer.completion import completion_init  # type: ignore[attr-defined]

from downrange.admin.admin_client import AdminClient
from downrange.admin.errors import NothingThereError, WrongRequestError
from downrange.app.commands.contexts import Cluster, ContextError, Contexts, chosen_cluster
from downrange.app.commands.output import Form, Shown, write
from downrange.app.commands.process_options import Process, completed_by
from downrange.app.commands.tls_options import TLS_OPTIONS, tls_choice
from downrange.app.event_loop import loop_factory
from downrange.client.errors import (
    BrokerRefusal,
    BrokerUnreachableError,
    ClientTimeoutError,
    InvalidMessageError,
    NoNameServerError,
    NoRouteError,
    RocketMQError,
    UnknownBrokerError,
)
from downrange.client.settings import ClientSettings
from downrange.protocol.errors import ProtocolError
from downrange.protocol.response_codes import ResponseCode
from downrange.runtime.log_lines import OneLineFormatter
from downrange.runtime.printable import printable_lines

EXIT_OK: Final = 0
EXIT_FAILED: Final = 1
EXIT_USAGE: Final = 2
EXIT_NOT_FOUND: Final = 3
EXIT_UNREACHABLE: Final = 4
EXIT_FINDINGS: Final = 5
EXIT_INTERRUPTED: Final = 130

EXIT_CODES: Final = {
    EXIT_OK: "done",
    EXIT_FAILED: "a broker refused, something broke, or the question was answered with no",
    EXIT_USAGE: "the command line is wrong, or asks for what cannot be",
    EXIT_NOT_FOUND: "the topic, group, message, broker or context is not there",
    EXIT_UNREACHABLE: "no name server or broker answers",
    EXIT_FINDINGS: "`doctor` or `store verify` has found something",
    EXIT_INTERRUPTED: "ended by Ctrl-C",
}
"""What an exit code means; the reference prints this."""

_MISSING: Final = frozenset(
    {int(ResponseCode.TOPIC_NOT_EXIST), int(ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST)}
)
_UNREACHABLE: Final = (
    NoNameServerError,
    BrokerUnreachableError,
    ClientTimeoutError,
    UnknownBrokerError,
)
P = ParamSpec("P")

OutputOption = Annotated[
    Form, typer.Option("-o", "--output", help="How to print: for people, or for programs.")
]
NameServersOption = Annotated[
    str | None,
    typer.Option(
        "-n", "--name-servers", metavar="HOST:PORT", help="Name servers, several with ; between."
    ),
]
ContextOption = Annotated[
    str | None, typer.Option("--context", metavar="NAME", help="A named cluster.")
]
TimeoutOption = Annotated[
    float, typer.Option("--timeout", metavar="SECONDS", help="How long to wait for an answer.")
]
VerboseOption = Annotated[bool, typer.Option("-v", "--verbose", help="Log to standard error.")]
DryRunOption = Annotated[
    bool, typer.Option("--dry-run", help="Say what would be done, and do nothing.")
]
YesOption = Annotated[bool, typer.Option("-y", "--yes", help="Do not ask.")]


class Stop(Exception):  # noqa: N818 - an end, not an error
    """Ends a command with an exit code, after a line for the user if there is one."""

    def __init__(self, code: int, text: str = "") -> None:
        super().__init__(text)
        self.code = code


@dataclass(frozen=True, slots=True)
class Call:
    """One run of a command: which cluster, and how to print."""

    form: Form
    settings: ClientSettings
    origin: str = ""  # where the address of the cluster was found

    def admin(self) -> AdminClient:
        """What operates the cluster, for `async with`."""
        return AdminClient(self.settings)

    def note(self, text: str) -> None:
        """Tell people something, where programs do not read it."""
        typer.echo(printable_lines(text), err=True)

    def show(self, shown: Shown) -> None:
        """Print a result now; what a command returns is printed anyway."""
        write(shown, self.form)

    def confirm(self, question: str, *, yes: bool) -> None:
        """Ask; the command ends here if the answer is not yes."""
        if not yes and not typer.confirm(question, err=True):
            raise Stop(EXIT_FAILED, "nothing was changed")


ClusterCommand = Callable[Concatenate[Call, P], Coroutine[None, None, Shown | None]]
LocalCommand = Callable[Concatenate[Form, P], Shown | None]


class _Module(Protocol):
    """What a module of commands has."""

    app: typer.Typer


def new_app(about: str) -> typer.Typer:
    """An app for one noun."""
    return typer.Typer(
        help=about,
        no_args_is_help=True,
        add_completion=False,
        pretty_exceptions_enable=False,
        rich_markup_mode=None,  # rich takes longer to load than most commands take to run
    )


def cluster_command(
    app: typer.Typer, name: str
) -> Callable[[ClusterCommand[P]], ClusterCommand[P]]:
    """Make a coroutine a command on a cluster."""

    def register(function: ClusterCommand[P]) -> ClusterCommand[P]:
        def run_it(**given: object) -> None:
            form = cast("Form", given.pop("output"))
            name_servers = cast("str | None", given.pop("name_servers"))
            context = cast("str | None", given.pop("context"))
            timeout_s = cast("float", given.pop("timeout"))
            verbose = bool(given.pop("verbose"))
            tls = tls_choice(given)

            def body() -> Shown | None:
                contexts = Contexts.of_user(os.environ)
                cluster = chosen_cluster(name_servers, context, os.environ, contexts, tls)
                call = Call(form, _settings(cluster, timeout_s), cluster.origin)
                with asyncio.Runner(loop_factory=loop_factory()) as runner:
                    return runner.run(function(call, **given))  # type: ignore[arg-type, call-arg]

            with _logging(verbose=verbose):
                _end(body, form)

        added = {
            "name_servers": (NameServersOption, None),
            "context": (ContextOption, None),
            **TLS_OPTIONS,
            "timeout": (TimeoutOption, 5.0),
            "output": (OutputOption, Form.TABLE),
            "verbose": (VerboseOption, False),
        }
        app.command(name)(_with_signature(run_it, function, added))
        return function

    return register


def local_command(app: typer.Typer, name: str) -> Callable[[LocalCommand[P]], LocalCommand[P]]:
    """Make a function a command that needs no cluster."""

    def register(function: LocalCommand[P]) -> LocalCommand[P]:
        def run_it(**given: object) -> None:
            form = cast("Form", given.pop("output"))
            _end(lambda: function(form, **given), form)  # type: ignore[arg-type, call-arg]

        added = {"output": (OutputOption, Form.TABLE)}
        app.command(name)(_with_signature(run_it, function, added))
        return function

    return register


def run(name: str, module: str, words: list[str]) -> int:
    """Run the commands of a module; returns the exit code."""
    app = cast("_Module", importlib.import_module(module)).app
    return _main(typer.main.get_command(app), f"downrange {name}", words)


def complete(rows: Sequence["Row"]) -> int:
    """Answer a shell that completes a command line; only what it is about is loaded."""
    line = os.environ.get("COMP_WORDS", "") + " " + os.environ.get("_TYPER_COMPLETE_ARGS", "")
    completion_init()
    return _main(typer.main.get_command(root_app(rows, line.split())), "downrange", [])


class Row(Protocol):
    """A row of the table of commands."""

    @property
    def name(self) -> str:
        """What it is called."""
        ...

    @property
    def about(self) -> str:
        """What it does."""
        ...

    @property
    def process(self) -> str:
        """The module of its process; empty if it has none."""
        ...

    @property
    def commands(self) -> str:
        """The module with its app; empty if it is no typer app."""
        ...


def root_app(rows: Sequence[Row], loaded: Collection[str]) -> typer.Typer:
    """All commands as one app; those that are not to be loaded have a name and nothing else."""
    root = new_app("RocketMQ in Python")
    for row in rows:
        if row.name not in loaded:
            root.command(row.name, help=row.about)(_not_loaded)
            continue
        options = _process_options(row.process) if row.process else None
        if row.commands:
            app = cast("_Module", importlib.import_module(row.commands)).app
            if is_single(app):
                (info,) = app.registered_commands
                assert info.callback is not None
                root.command(row.name, help=row.about)(info.callback)
            else:
                root.add_typer(app, name=row.name, help=row.about, callback=options)
        elif options is not None:
            root.command(row.name, help=row.about)(options)
    return root


def _process_options(module: str) -> Callable[[], None]:
    return completed_by(cast("Process", importlib.import_module(module)))


def is_single(app: typer.Typer) -> bool:
    """Whether a noun is a command by itself."""
    return (
        len(app.registered_commands) == 1
        and not app.registered_groups
        and not (app.registered_callback)
    )


def _not_loaded() -> None:
    """Stands for a command whose name is all that is asked for."""


def _main(command: "_Command", name: str, words: list[str]) -> int:
    try:
        command.main(args=words, prog_name=name)
    except SystemExit as end:
        return end.code if isinstance(end.code, int) else EXIT_FAILED
    return EXIT_OK


class _Command(Protocol):
    def main(self, args: Sequence[str] | None, prog_name: str | None) -> object: ...


def _with_signature(  # type: ignore[explicit-any]
    run_it: Callable[..., None],
    function: Callable[..., object],
    added: Mapping[str, tuple[object, object]],
) -> Callable[..., None]:
    """`run_it` with the parameters of a function behind its first one, and those added."""
    functools.update_wrapper(run_it, function)
    hints = get_type_hints(function, include_extras=True)
    own = list(inspect.signature(function).parameters.values())[1:]
    parameters = [
        inspect.Parameter(
            one.name, one.KEYWORD_ONLY, default=one.default, annotation=hints[one.name]
        )
        for one in own
    ] + [
        inspect.Parameter(
            name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=annotation
        )
        for name, (annotation, default) in added.items()
    ]
    run_it.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    run_it.__annotations__ = {one.name: one.annotation for one in parameters}
    del run_it.__wrapped__  # type: ignore[attr-defined]
    return run_it


def _end(body: Callable[[], Shown | None], form: Form) -> None:
    """Run a command, print its result, and leave with its exit code."""
    try:
        shown = body()
        if shown is not None:
            write(shown, form)
        sys.stdout.flush()
    except KeyboardInterrupt:
        raise typer.Exit(EXIT_INTERRUPTED) from None
    except BrokenPipeError:
        # Whoever read our output has had enough, as `head` does; that is no failure.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        raise typer.Exit(EXIT_OK) from None
    except (Stop, RocketMQError, ProtocolError, ContextError, OSError) as error:
        if str(error):
            typer.echo(printable_lines(f"downrange: {error}"), err=True)
        raise typer.Exit(_code_of(error)) from None


def _code_of(error: Exception) -> int:
    if isinstance(error, Stop):
        return error.code
    if isinstance(error, ContextError):
        return EXIT_NOT_FOUND if error.is_missing else EXIT_USAGE
    if isinstance(error, WrongRequestError | InvalidMessageError):
        return EXIT_USAGE
    if isinstance(error, NothingThereError | NoRouteError):
        return EXIT_NOT_FOUND
    if isinstance(error, BrokerRefusal):
        return EXIT_NOT_FOUND if error.response_code in _MISSING else EXIT_FAILED
    if isinstance(error, _UNREACHABLE):
        return EXIT_UNREACHABLE
    return EXIT_FAILED


def _settings(cluster: Cluster, timeout_s: float) -> ClientSettings:
    try:
        return cluster.settings(timeout_s)
    except RocketMQError as error:
        raise Stop(EXIT_USAGE, f"{error} (from {cluster.origin})") from error


@contextlib.contextmanager
def _logging(*, verbose: bool) -> Iterator[None]:
    """What the client logs goes to standard error, or nowhere; after the command as before."""
    logger = logging.getLogger("downrange")
    before = logger.level, logger.propagate, logger.handlers
    handler = logging.StreamHandler(sys.stderr) if verbose else logging.NullHandler()
    handler.setFormatter(OneLineFormatter())
    logger.setLevel(logging.INFO)
    logger.propagate, logger.handlers = False, [handler]
    try:
        yield
    finally:
        logger.setLevel(before[0])
        logger.propagate, logger.handlers = before[1:]
