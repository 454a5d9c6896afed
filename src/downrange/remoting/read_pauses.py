"""Why a connection is not read; it is read again when the last reason is gone."""

import asyncio
from enum import Flag, auto


class Pause(Flag):
    """A reason not to read."""

    UNREAD = auto()  # the peer does not read its responses
    MEMORY = auto()  # the server holds too many bytes of incomplete requests
    RATE = auto()  # its address sends more bytes per second than it may
    STOPPED = auto()  # the connection is about to be closed


class ReadPauses:
    """The reasons of one connection. Owned by it."""

    def __init__(self) -> None:
        self._reasons = Pause(0)

    @property
    def is_stopped(self) -> bool:
        """Whether the connection is about to be closed."""
        return Pause.STOPPED in self._reasons

    def add(self, reason: Pause, transport: asyncio.Transport | None) -> None:
        """Stop reading."""
        if not self._reasons and transport is not None and not transport.is_closing():
            transport.pause_reading()
        self._reasons |= reason

    def remove(self, reason: Pause, transport: asyncio.Transport | None) -> None:
        """This reason is gone; others may be left."""
        was, self._reasons = self._reasons, self._reasons & ~reason
        is_last = bool(was) and not self._reasons
        if is_last and transport is not None and not transport.is_closing():
            transport.resume_reading()
