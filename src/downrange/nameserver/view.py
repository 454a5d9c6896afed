"""What an observer of a running name server may look at."""

from collections.abc import Mapping
from dataclasses import dataclass

from downrange.remoting.intake import Intake
from downrange.runtime.loop_watch import LoopWatch


@dataclass(frozen=True, slots=True, kw_only=True)
class NameServerView:
    """One look at a name server."""

    brokers_by_cluster: Mapping[str, int]  # addresses, slaves among them
    topic_count: int
    connection_count: int
    watch: LoopWatch
    intake: Intake
