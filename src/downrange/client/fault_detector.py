"""Finds out whether brokers that could not be reached can be reached again.

With it, a broker that did not answer is left alone until it does, not for a time of our guessing;
Java's startDetectorEnable.
"""

import logging
from collections.abc import Callable, Iterable
from typing import Final

from downrange.client.errors import RocketMQError
from downrange.client.queue_choice import FaultTable
from downrange.client.session import Session
from downrange.client.settings import ProducerSettings
from downrange.client.wakeup import pause

_log = logging.getLogger(__name__)

ROUND_S: Final = 3.0


class FaultDetector:
    """Asks the brokers of a fault table, each at most once in an interval."""

    def __init__(
        self,
        faults: FaultTable,
        session: Session,
        settings: ProducerSettings,
        topics: Callable[[], Iterable[str]],
    ) -> None:
        self._faults = faults
        self._session = session
        self._interval_ms = settings.fault_detector_interval_s * 1000
        self._timeout_s = settings.fault_detector_timeout_s
        self._topics = topics

    async def run(self) -> None:
        """Ask until cancelled."""
        while True:
            await pause(ROUND_S)
            await self.look()

    async def look(self) -> None:
        """One round. A broker that no route knows any more is forgotten."""
        now_ms = self._session.clock.monotonic_s() * 1000
        for broker in self._faults.due(now_ms, self._interval_ms):
            address = self._session.routes.master_address(broker)
            if address is None:
                self._faults.forget(broker)
            elif await self._answers(broker, address) and self._faults.reached(broker):
                _log.info("broker %s can be reached again", broker)

    async def _answers(self, broker: str, address: str) -> bool:
        """Whether it answers a question about one of its queues that messages were sent to."""
        for topic in self._topics():
            for queue in self._session.routes.publish_queues(topic):
                if queue.broker_name == broker:
                    try:
                        await self._session.calls.max_offset(
                            address, queue, timeout_s=self._timeout_s
                        )
                    except RocketMQError:
                        return False
                    return True
        return False
