"""What the connections of one server share on the receiving side: limits, memory, addresses."""

from collections import Counter
from collections.abc import Callable

from downrange.remoting.address_limits import AddressLimits
from downrange.remoting.receive_budget import ReceiveBudget
from downrange.remoting.request_limits import RequestLimits
from downrange.remoting.settings import ConnectionSettings


class Intake:
    """Owned by the server. `refusals` counts, by reason, requests refused and connections closed.

    The reasons: header, body, json (requests over a limit, `request_limits`); slow, pressure,
    memory (connections, `receive_budget`); address, full (connections not accepted).
    """

    def __init__(self, settings: ConnectionSettings, now_s: Callable[[], float]) -> None:
        self.refusals: Counter[str] = Counter()
        self.limits = RequestLimits(settings, self.refusals)
        self.budget = ReceiveBudget(
            settings.held_bytes_max, settings.receive_s_max, now_s, self.refusals
        )
        self.addresses = AddressLimits(
            settings.connections_per_address_max, settings.bytes_per_second_max, now_s
        )
