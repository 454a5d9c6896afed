"""Which name servers there are, which one is asked, and what happens when it does not answer."""

import logging
import random
from collections.abc import Awaitable, Callable, Sequence
from typing import Final

from downrange.client.errors import NoNameServerError, RocketMQError
from downrange.client.peers import Peers
from downrange.protocol.command import Command
from downrange.protocol.errors import ProtocolError
from downrange.protocol.hosts import parse_address
from downrange.runtime.clock import Clock

_log = logging.getLogger(__name__)

LOOKUP_TIMEOUT_S: Final = 3.0

# Fetches the text behind an address in a time; `OSError` if it cannot be had.
Fetcher = Callable[[str, float], Awaitable[str]]


class NameServers:
    """Asks one name server as long as it answers, then the next one.

    Name servers do not know each other and know the same, so any of them will do.
    """

    def __init__(
        self,
        peers: Peers,
        clock: Clock,
        chance: random.Random,
        addresses: Sequence[str],
        *,
        lookup: str = "",
        unit_name: str = "",
        fetch: Fetcher | None = None,
    ) -> None:
        self._peers = peers
        self._clock = clock
        self._chance = chance
        self._fetch = fetch
        self._lookup = lookup_address(lookup, unit_name) if lookup else ""
        self._addresses: list[str] = []
        self._chosen = 0
        self.update(addresses)

    @property
    def addresses(self) -> tuple[str, ...]:
        """The name servers that are known."""
        return tuple(self._addresses)

    @property
    def is_looked_up(self) -> bool:
        """Whether the list comes from a look-up address and may change."""
        return bool(self._lookup) and self._fetch is not None

    def update(self, addresses: Sequence[str]) -> bool:
        """Take a new list; nothing happens if it holds the same names, in whatever order."""
        if not addresses or set(addresses) == set(self._addresses):
            return False
        self._addresses = list(addresses)
        # Clients spread over the name servers by starting with different ones.
        self._chance.shuffle(self._addresses)
        self._chosen = 0
        return True

    async def look_up(self) -> None:
        """Fetch the list again; a failure leaves it as it is and is raised."""
        assert self._fetch is not None
        try:
            text = await self._fetch(self._lookup, LOOKUP_TIMEOUT_S)
        except OSError as error:
            raise NoNameServerError(
                f"the name servers cannot be looked up at {self._lookup}: {error}; make that "
                f"address answer, or give the list in name_servers"
            ) from error
        found = [part.strip() for part in _first_line(text).split(";") if part.strip()]
        try:
            for address in found:
                parse_address(address)
        except ProtocolError as error:
            raise NoNameServerError(f"{self._lookup} answers with {error}") from None
        if not found:
            raise NoNameServerError(f"{self._lookup} answers without a name server")
        if self.update(found):
            _log.info("name servers looked up addresses=%s", ";".join(found))

    async def ask(
        self,
        code: int,
        fields: dict[str, str] | None = None,
        body: bytes | None = None,
        *,
        timeout_s: float,
    ) -> Command:
        """The answer of the first name server that gives one; all of them share the time."""
        count = len(self._addresses)
        if not count:
            raise NoNameServerError(
                "no name server is known; set name_servers to its address, host:9876"
            )
        deadline_s = self._clock.monotonic_s() + timeout_s
        failures: list[str] = []
        for turn in range(count):
            left_s = deadline_s - self._clock.monotonic_s()
            if left_s <= 0:
                break
            address = self._addresses[self._chosen % len(self._addresses)]
            try:
                return await self._peers.call(
                    address, code, fields, body, timeout_s=left_s / (count - turn)
                )
            except RocketMQError as error:
                failures.append(str(error))
                self._chosen = (self._chosen + 1) % len(self._addresses)
        raise NoNameServerError(
            f"none of {count} name servers answers ({'; '.join(failures)}); "
            f"check the addresses, whether a name server runs there, and that TLS is switched on "
            f"at both ends or at neither"
        )


def lookup_address(address: str, unit_name: str) -> str:
    """The address to fetch, which is different for each unit."""
    return f"{address}-{unit_name}?nofix=1" if unit_name.strip() else address


def _first_line(text: str) -> str:
    lines = text.strip().splitlines()
    return lines[0] if lines else ""
