"""Limits per IP address: how many connections, and how many bytes per second are read."""

from collections import Counter
from collections.abc import Callable

BURST_S = 1.0  # an address that was silent may send as much as for one second at once


class AddressLimits:
    """Counts by the peer's IP address. Owned by the event loop; 0 means no limit."""

    def __init__(
        self, connections_max: int, bytes_per_second_max: int, now_s: Callable[[], float]
    ) -> None:
        self._connections_max = connections_max
        self._bytes_per_second_max = bytes_per_second_max
        self._now_s = now_s
        self._connections: Counter[str] = Counter()
        self._free_at_s: dict[str, float] = {}  # when all that was read is paid for

    @property
    def limits_bytes(self) -> bool:
        """Whether `delay_s` has to be asked."""
        return self._bytes_per_second_max > 0

    def admit(self, ip: str) -> bool:
        """Count a new connection; False if its address has too many. Ends with `leave`."""
        if self._connections_max and self._connections[ip] >= self._connections_max:
            return False
        self._connections[ip] += 1
        return True

    def leave(self, ip: str) -> None:
        """A connection that was admitted is gone."""
        self._connections[ip] -= 1
        if not self._connections[ip]:
            del self._connections[ip]
            if self._free_at_s.get(ip, 0.0) <= self._now_s():
                self._free_at_s.pop(ip, None)

    def delay_s(self, ip: str, byte_count: int) -> float:
        """Bytes were read from this address; returns for how long not to read more from it."""
        now_s = self._now_s()
        begin_s = max(self._free_at_s.get(ip, 0.0), now_s - BURST_S)
        self._free_at_s[ip] = free_at_s = begin_s + byte_count / self._bytes_per_second_max
        return max(free_at_s - now_s, 0.0)
