"""Named clusters, kept in the user's configuration directory.

The file holds secrets if a user stores some, so nobody else may read it.
"""

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Self

import msgspec

from downrange.client.acl_signature import Credentials
from downrange.client.settings import ClientSettings

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


class ContextFile(msgspec.Struct, frozen=True, kw_only=True):
    """What the file holds."""

    current: str | None = None
    contexts: dict[str, Context] = msgspec.field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Cluster:
    """The cluster that a command is for; `origin` says why this one."""

    context: Context
    origin: str

    def settings(self, timeout_s: float) -> ClientSettings:
        """What a client needs; `RocketMQError` if the addresses cannot be read."""
        context = self.context
        keys = (context.access_key, context.secret_key)
        return ClientSettings(
            name_servers=context.name_servers,
            credentials=Credentials(*keys) if all(keys) else None,
            use_tls=context.tls,
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
) -> Cluster:
    """Which cluster is meant: what was said last and nearest wins."""
    named = context or environment.get(CONTEXT_VARIABLE)
    if name_servers and context is None:
        return _with_keys(Context(name_servers=name_servers), "-n", environment)
    if context is None and (given := environment.get(NAME_SERVERS_VARIABLE)):
        return _with_keys(Context(name_servers=given), f"${NAME_SERVERS_VARIABLE}", environment)
    if named is None:
        named = contexts.load().current
    if named is not None:
        found = contexts.find(named)
        if name_servers:  # another address of the same cluster, say through a tunnel
            found = msgspec.structs.replace(found, name_servers=name_servers)
        return _with_keys(found, f"context {named}", environment)
    if given := environment.get(ROCKETMQ_VARIABLE):
        return _with_keys(Context(name_servers=given), f"${ROCKETMQ_VARIABLE}", environment)
    return _with_keys(Context(name_servers=DEFAULT_ADDRESS), "the default", environment)


def _with_keys(context: Context, origin: str, environment: Mapping[str, str]) -> Cluster:
    access, secret = environment.get(ACCESS_KEY_VARIABLE), environment.get(SECRET_KEY_VARIABLE)
    if access and secret:
        context = msgspec.structs.replace(context, access_key=access, secret_key=secret)
    return Cluster(context, origin)
