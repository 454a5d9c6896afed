"""Named clusters, kept in the user's configuration directory.

The file holds secrets if a user stores some, so nobody else may read it.
"""

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Self

import msgspec

from downrange.app.tls_choice import TlsChoice, tls_of_environment
from downrange.client.acl_signature import Credentials
from downrange.client.settings import ClientSettings
from downrange.client.tls import TlsSettings

CONFIG_VARIABLE: Final = "DOWNRANGE_CONFIG_DIR"
NAME_SERVERS_VARIABLE: Final = "DOWNRANGE_NAME_SERVERS"
CONTEXT_VARIABLE: Final = "DOWNRANGE_CONTEXT"
ACCESS_KEY_VARIABLE: Final = "DOWNRANGE_ACCESS_KEY"
SECRET_KEY_VARIABLE: Final = "DOWNRANGE_SECRET_KEY"  # noqa: S105 - the name of a variable
ROCKETMQ_VARIABLE: Final = "NAMESRV_ADDR"
DEFAULT_ADDRESS: Final = "127.0.0.1:9876"
FILE_NAME: Final = "contexts.json"


class ContextError(Exception):
    """A context is missing or cannot be read; the text says what to do."""

    def __init__(self, text: str, *, is_missing: bool = False) -> None:
        super().__init__(text)
        self.is_missing = is_missing


class Context(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A cluster and how to enter it."""

    name_servers: str
    access_key: str = ""
    secret_key: str = ""
    tls: bool = False
    tls_ca_file: str = ""
    tls_certificate_file: str = ""
    tls_key_file: str = ""
    tls_key_password: str = ""
    tls_server_name: str = ""
    tls_verify: bool = True

    def tls_settings(self) -> TlsSettings | None:
        """How TLS connections are made; None without TLS."""
        if not self.tls:
            return None
        return TlsSettings(
            ca_file=self.tls_ca_file,
            certificate_file=self.tls_certificate_file,
            key_file=self.tls_key_file,
            key_password=self.tls_key_password,
            server_name=self.tls_server_name,
            verify=self.tls_verify,
        )


class ContextFile(msgspec.Struct, frozen=True, kw_only=True):
    """What the file holds."""

    current: str | None = None
    contexts: dict[str, Context] = msgspec.field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Cluster:
    """The cluster that a command is for; `origin` says why this one."""

    context: Context
    origin: str

    def with_context(self, context: Context) -> "Cluster":
        """The same cluster, entered another way."""
        return Cluster(context, self.origin)

    def settings(self, timeout_s: float) -> ClientSettings:
        """What a client needs; `RocketMQError` if the addresses cannot be read."""
        context = self.context
        keys = (context.access_key, context.secret_key)
        return ClientSettings(
            name_servers=context.name_servers,
            credentials=Credentials(*keys) if all(keys) else None,
            tls=context.tls_settings(),
            api_timeout_s=timeout_s,
            connect_timeout_s=min(timeout_s, 3.0),
        )


class Contexts:
    """The file; read when it is needed, replaced as a whole."""

    def __init__(self, path: Path) -> None:
        self.path = path

    @classmethod
    def of_user(cls, environment: Mapping[str, str]) -> Self:
        """The file of whoever runs this."""
        folder = environment.get(CONFIG_VARIABLE)
        if folder:
            return cls(Path(folder) / FILE_NAME)
        base = environment.get("XDG_CONFIG_HOME") or str(Path.home() / ".config")
        return cls(Path(base) / "downrange" / FILE_NAME)

    def load(self) -> ContextFile:
        """All contexts; none if there is no file."""
        try:
            data = self.path.read_bytes()
        except FileNotFoundError:
            return ContextFile()
        try:
            return msgspec.json.decode(data, type=ContextFile)
        except msgspec.DecodeError as error:
            raise ContextError(f"{self.path} cannot be read: {error}; mend or delete it") from None

    def save(self, file: ContextFile) -> None:
        """Replace the file; a crash leaves the old one or the new one."""
        self.path.parent.mkdir(parents=True, exist_ok=True)
        new = self.path.with_suffix(f".{os.getpid()}.tmp")
        new.touch(mode=0o600)
        new.write_bytes(msgspec.json.format(msgspec.json.encode(file), indent=2) + b"\n")
        new.replace(self.path)

    def find(self, name: str) -> Context:
        """One context; `ContextError` says which there are."""
        known = self.load().contexts
        if name not in known:
            there = ", ".join(known) or "none yet"
            raise ContextError(
                f"there is no context {name!r} (known: {there}); add it with "
                f"`downrange context add {name} -n HOST:PORT`",
                is_missing=True,
            )
        return known[name]


def chosen_cluster(
    name_servers: str | None,
    context: str | None,
    environment: Mapping[str, str],
    contexts: Contexts,
    tls: TlsChoice | None = None,
) -> Cluster:
    """The cluster of a command: options win over the environment, and that over contexts."""
    found = _found_cluster(name_servers, context, environment, contexts)
    access, secret = environment.get(ACCESS_KEY_VARIABLE), environment.get(SECRET_KEY_VARIABLE)
    if access and secret:
        found = found.with_context(
            msgspec.structs.replace(found.context, access_key=access, secret_key=secret)
        )
    try:
        of_environment = tls_of_environment(environment)
    except ValueError as error:
        raise ContextError(str(error)) from None
    for choice in (of_environment, tls):
        if choice is not None:
            found = found.with_context(with_tls(found.context, choice))
    return found


def with_tls(context: Context, choice: TlsChoice) -> Context:
    """The context with what was chosen."""
    tls = choice.applied(context.tls_settings())
    if tls is None:
        return msgspec.structs.replace(context, tls=False)
    return msgspec.structs.replace(
        context,
        tls=True,
        tls_ca_file=tls.ca_file,
        tls_certificate_file=tls.certificate_file,
        tls_key_file=tls.key_file,
        tls_key_password=tls.key_password,
        tls_server_name=tls.server_name,
        tls_verify=tls.verify,
    )


def _found_cluster(
    name_servers: str | None,
    context: str | None,
    environment: Mapping[str, str],
    contexts: Contexts,
) -> Cluster:
    named = context or environment.get(CONTEXT_VARIABLE)
    if name_servers and context is None:
        return Cluster(Context(name_servers=name_servers), "-n")
    if context is None and (given := environment.get(NAME_SERVERS_VARIABLE)):
        return Cluster(Context(name_servers=given), f"${NAME_SERVERS_VARIABLE}")
    if named is None:
        named = contexts.load().current
    if named is not None:
        found = contexts.find(named)
        if name_servers:  # another address of the same cluster, say through a tunnel
            found = msgspec.structs.replace(found, name_servers=name_servers)
        return Cluster(found, f"context {named}")
    if given := environment.get(ROCKETMQ_VARIABLE):
        return Cluster(Context(name_servers=given), f"${ROCKETMQ_VARIABLE}")
    return Cluster(Context(name_servers=DEFAULT_ADDRESS), "the default")
