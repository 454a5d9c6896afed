"""What an observer of a running broker may look at."""

from dataclasses import dataclass

from downrange.broker.assembly import Assembly
from downrange.broker.handlers.admin.runtime_info import WaitingLine, WaitingLines
from downrange.broker.overload import Protection
from downrange.broker.rates import Rates
from downrange.broker.request_times import RequestTimes
from downrange.broker.settings import BrokerSettings
from downrange.broker.stats import BrokerStats
from downrange.broker.tables import BrokerTables
from downrange.remoting.intake import Intake
from downrange.runtime.loop_watch import LoopWatch
from downrange.store.message_store import MessageStore


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerView:
    """One look at a broker; to be used on its event loop, within one turn, and to read only."""

    settings: BrokerSettings
    address: str
    store: MessageStore
    tables: BrokerTables
    stats: BrokerStats
    rates: Rates
    waiting: WaitingLines
    connection_count: int
    request_times: RequestTimes | None  # None: not measured
    watch: LoopWatch
    intake: Intake
    is_known: bool  # to a name server at least; True if there is none to tell
    sync_wait_s: float  # how long senders have waited for the running sync; 0 if none does


def waiting_lines(
    settings: BrokerSettings, protection: Protection, parts: Assembly
) -> WaitingLines:
    """The requests that wait; parked pulls are idle, not waiting."""
    late_ms = protection.late_ms
    sends = protection.waiting_sends
    return WaitingLines(
        sends=WaitingLine(sends.count, sends.capacity, late_ms),
        pulls=WaitingLine(0, settings.waiting_pulls_max, late_ms),
        ends=WaitingLine(parts.half_messages.waiting_ends, settings.waiting_ends_max),
    )
