"""Tells brokers every half minute who is there and what they want; version 2 leaves out what the
broker has already.
"""

import logging
from collections.abc import Callable, Sequence

import msgspec

from downrange.client.broker_calls import BrokerCalls
from downrange.client.errors import RocketMQError
from downrange.client.participant import Participant
from downrange.client.routes import Routes
from downrange.model.topics import MASTER_ID
from downrange.protocol.bodies.heartbeat import (
    ConsumerGroup,
    Heartbeat,
    ProducerGroup,
    heartbeat_fingerprint,
)

_log = logging.getLogger(__name__)


class Heartbeats:
    """Sends heartbeats for a session, never two at the same time to one broker."""

    def __init__(
        self,
        client_id: str,
        calls: BrokerCalls,
        routes: Routes,
        participants: Callable[[], Sequence[Participant]],
        *,
        version_2: bool = False,
    ) -> None:
        self._client_id = client_id
        self._calls = calls
        self._routes = routes
        self._participants = participants
        self._version_2 = version_2
        self._sending: set[str] = set()
        self._again: set[str] = set()
        self._failing: set[str] = set()
        self._fingerprints: dict[str, int] = {}  # by address: what the broker knows already
        self.versions: dict[str, int] = {}  # by address: the release of the broker

    async def send_to_all(self, *, forget_known: bool = False) -> None:
        """Every broker that is known; replicas hear of consumers only."""
        if forget_known:
            self._fingerprints.clear()
        for addresses in list(self._routes.brokers.values()):
            for broker_id, address in list(addresses.items()):
                await self.send(address, is_master=broker_id == MASTER_ID)

    async def send(self, address: str, *, is_master: bool = True) -> bool:
        """One broker; whether it has answered. There may be nothing to say."""
        if address in self._sending:
            self._again.add(address)  # somebody may have joined since that one was written
            return False
        self._sending.add(address)
        try:
            self._again.add(address)
            while address in self._again:
                self._again.discard(address)
                beat = self._beat()
                if not beat.consumer_data_set and not (is_master and beat.producer_data_set):
                    return False
                await self._send(address, beat)
        except RocketMQError as error:
            # Once for each outage: a dead broker stays in the routes for two minutes.
            if address not in self._failing:
                _log.warning("heartbeat failed broker=%s: %s", address, error)
            self._failing.add(address)
            self._fingerprints.pop(address, None)
            return False
        else:
            self._failing.discard(address)
            return True
        finally:
            self._sending.discard(address)

    async def _send(self, address: str, beat: Heartbeat) -> None:
        if not self._version_2:
            answer = await self._calls.heartbeat(address, beat)
            self.versions[address] = answer.version
            return
        fingerprint = heartbeat_fingerprint(beat)
        beat = msgspec.structs.replace(beat, heartbeat_fingerprint=fingerprint)
        if self._fingerprints.get(address) == fingerprint:
            beat = _without_subscriptions(beat)
        answer = await self._calls.heartbeat(address, beat)
        self.versions[address] = answer.version
        if answer.supports_v2 and not answer.subscription_changed:
            self._fingerprints[address] = fingerprint
        else:
            self._fingerprints.pop(address, None)

    def _beat(self) -> Heartbeat:
        producers: list[ProducerGroup] = []
        consumers: list[ConsumerGroup] = []
        for participant in self._participants():
            data = participant.heartbeat()
            if isinstance(data, ProducerGroup):
                producers.append(data)
            else:
                consumers.append(data)
        return Heartbeat(
            client_id=self._client_id,
            producer_data_set=tuple(producers),
            consumer_data_set=tuple(consumers),
        )


def _without_subscriptions(beat: Heartbeat) -> Heartbeat:
    return msgspec.structs.replace(
        beat,
        without_sub=True,
        consumer_data_set=tuple(
            msgspec.structs.replace(group, subscription_data_set=())
            for group in beat.consumer_data_set
        ),
    )
