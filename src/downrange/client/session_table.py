"""Which sessions a process has: producers and consumers with equal settings share one.

A child of a fork starts with an empty table; the sessions of its parent are not touched.
"""

import asyncio
import os
import random
import time
from dataclasses import dataclass, replace
from typing import Final

from downrange.client.client_id import (
    DEFAULT_INSTANCE,
    build_client_id,
    local_ip,
    process_instance_name,
)
from downrange.client.errors import ClientStateError
from downrange.client.http_fetch import fetch_text
from downrange.client.session import ClientSurroundings, Session
from downrange.client.settings import ClientSettings
from downrange.client.tls import client_network
from downrange.runtime.clock import SystemClock

NAME_SERVERS_VARIABLE: Final = "NAMESRV_ADDR"  # as for Java clients, when nothing is said


@dataclass(slots=True)
class _Entry:
    session: Session
    settings: ClientSettings
    users: int


class SessionTable:
    """Sessions by client id and event loop; `nonce` makes the ids of this process its own."""

    def __init__(self, *, nonce: int, around: ClientSurroundings | None = None) -> None:
        self._nonce = nonce
        self._around = around
        self._process_id: int | None = None
        self._entries: dict[tuple[int, str], _Entry] = {}
        self._of_the_parent: list[dict[tuple[int, str], _Entry]] = []
        self._generated: list[ClientSettings] = []

    def acquire(self, settings: ClientSettings, *, keep_instance_name: bool = False) -> Session:
        """The session for these settings, made if there is none; give it back with `release`.

        The instance name DEFAULT becomes one of this process, unless it is to be kept: a
        broadcasting consumer finds its offset file by it.
        """
        around = self._surroundings(settings)
        self._enter_process(around.process_id())
        named = self._named(settings, keep_instance_name=keep_instance_name)
        client_id = build_client_id(named.client_ip, named.instance_name, named.unit_name)
        self._drop_closed()
        key = (id(asyncio.get_running_loop()), client_id)
        entry = self._entries.get(key)
        if entry is None:
            entry = _Entry(Session(named, client_id, around), named, 0)
            self._entries[key] = entry
        elif entry.settings != named:
            raise ClientStateError(
                f"client {client_id} exists with other settings; give this one another "
                f"instance_name"
            )
        entry.users += 1
        return entry.session

    async def release(self, session: Session) -> None:
        """Give a session back; the last user's return shuts it down."""
        for key, entry in list(self._entries.items()):
            if entry.session is session:
                entry.users -= 1
                if entry.users == 0:
                    del self._entries[key]
                    await session.shutdown()

    def _drop_closed(self) -> None:
        """Forget sessions whose loop was closed under them; a new loop may get the same id."""
        for key, entry in list(self._entries.items()):
            if entry.session.loop.is_closed():
                del self._entries[key]

    def _enter_process(self, process_id: int) -> None:
        if self._process_id != process_id:
            if self._process_id is not None and self._entries:
                # Kept, not closed: closing would tell the parent's selector to forget its sockets.
                self._of_the_parent.append(self._entries)
                self._entries = {}
            self._process_id = process_id

    def _surroundings(self, settings: ClientSettings) -> ClientSurroundings:
        if self._around is not None:
            return self._around
        return ClientSurroundings(
            network=client_network(settings.tls),
            clock=SystemClock(),
            chance=random.Random(),  # noqa: S311 - spreads load, guards nothing
            fetch=fetch_text,
        )

    def _named(self, settings: ClientSettings, *, keep_instance_name: bool) -> ClientSettings:
        """The settings with address and instance name filled in."""
        assert self._process_id is not None
        instance = settings.instance_name
        if instance == DEFAULT_INSTANCE and not keep_instance_name:
            if settings not in self._generated:
                self._generated.append(settings)
            # Clients of different clusters must not share an id, nor connections.
            index = self._generated.index(settings)
            instance = process_instance_name(self._process_id, self._nonce + index)
        ip = settings.client_ip or local_ip()
        named = replace(settings, client_ip=ip, instance_name=instance)
        if self._around is None and not named.name_server_list and not named.name_server_lookup:
            return replace(named, name_servers=os.environ.get(NAME_SERVERS_VARIABLE, ""))
        return named


SESSIONS: Final = SessionTable(nonce=time.monotonic_ns())
"""The sessions of this process, for those who do not bring a table of their own."""
