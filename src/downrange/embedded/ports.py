"""Ports for servers that may be stopped and started again at the same place."""

import itertools
import os
import socket
from collections.abc import Iterator
from typing import Final

# Below 32768, where Linux begins with the ports of outgoing connections: one of those could take
# the port while its server is down.
SERVER_PORTS: Final = range(12_001, 32_001)
_STEP: Final = 5
_STEPS_OF_A_PROCESS: Final = 997  # keeps processes with neighbouring numbers apart
_ATTEMPTS_MAX: Final = 2_000


class FreePorts:
    """Walks round the ports from a place of this process's own, so that none comes twice soon."""

    def __init__(self, process_id: int | None = None) -> None:
        self._process_id = process_id
        self._walk: Iterator[int] | None = None
        self._walker = -1

    def take(self, host: str) -> int:
        """A port of this address that nobody listens on; `OSError` if there is none."""
        walk = self._own_walk()
        for _attempt in range(_ATTEMPTS_MAX):
            port = next(walk)
            if is_free(host, port):
                return port
        raise OSError(f"no free port among {_ATTEMPTS_MAX} that were tried on {host}")

    def _own_walk(self) -> Iterator[int]:
        process_id = self._process_id if self._process_id is not None else os.getpid()
        if self._walk is None or self._walker != process_id:  # a fork goes a way of its own
            self._walker = process_id
            start = process_id * _STEPS_OF_A_PROCESS
            self._walk = (
                SERVER_PORTS[(start + _STEP * turn) % len(SERVER_PORTS)]
                for turn in itertools.count()
            )
        return self._walk


def is_free(host: str, port: int) -> bool:
    """Whether a server could listen there now."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with socket.socket(family) as probe:
        # As the servers do: a port whose last connections are fading away is free.
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((host, port))
        except OSError:
            return False
        return True


FREE_PORTS: Final = FreePorts()
