"""What a server's connections hold, what was refused, and what held up its event loop."""

from downrange.monitoring.exposition import Section
from downrange.remoting.intake import Intake
from downrange.runtime.loop_watch import LoopWatch


def add_connection_families(section: Section, watch: LoopWatch, intake: Intake) -> None:
    """The same for name server and broker."""
    longest = section.gauge(
        "downrange_loop_longest_milliseconds",
        "Longest callback of the current and the last minute, and what it served",
    )
    lap = watch.longest
    if lap.subject:
        longest.add(lap.seconds * 1000, subject=lap.subject)
    blocked = section.counter(
        "downrange_loop_blocked_total", "Callbacks that took longer than loopWatchMillis"
    )
    blocked.add(watch.beyond_count)
    held = section.gauge(
        "downrange_connection_held_bytes", "Bytes of incomplete requests and unread responses"
    )
    held.add(intake.budget.held_bytes, direction="in")
    held.add(intake.budget.unsent_bytes, direction="out")
    paused = section.gauge(
        "downrange_connections_paused", "Connections not read until memory is free again"
    )
    paused.add(intake.budget.paused_count)
    refused = section.counter(
        "downrange_connection_refusals_total",
        "Requests refused and connections closed, by the limit they exceeded",
    )
    for reason, count in intake.refusals.items():
        refused.add(count, reason=reason)
