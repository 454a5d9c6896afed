"""How much memory brokers can make a name server hold by registering.

Apache's name server has no limits. These are far beyond real clusters; whoever reaches one is
broken or means harm, and is told which one.
"""

import logging
from collections.abc import Container
from dataclasses import dataclass

from msgspec import structs

from downrange.nameserver.broker_names import BrokerFacts
from downrange.protocol.bodies.registration import Registration
from downrange.protocol.response_codes import ResponseCode
from downrange.remoting.errors import Refused

_log = logging.getLogger(__name__)

# Every client of the topic makes an object per queue; brokers of downrange allow 10,000.
QUEUES_PER_TOPIC_MAX = 65_536


@dataclass(frozen=True, slots=True, kw_only=True)
class RegistrationLimits:
    """A registration is refused as a whole; only topics that make no sense are left out of it."""

    brokers_max: int = 10_000  # addresses over all clusters; each is a connection, too
    topics_max: int = 1_000_000  # names over all brokers, about 500 bytes each
    name_chars_max: int = 255  # of clusters, brokers, addresses and topics, as in RocketMQ
    filter_servers_max: int = 100  # per broker; a feature that RocketMQ has dropped

    def check_broker(
        self, facts: BrokerFacts, registration: Registration, others: int
    ) -> Registration:
        """The registration as it may be taken, besides so many other brokers."""
        for what, text in (
            ("cluster name", facts.cluster),
            ("broker name", facts.name),
            ("broker address", facts.address),
            ("HA address", facts.ha_address or ""),
            ("zone", facts.zone or ""),
        ):
            self._check_name(what, text)
        if others >= self.brokers_max:
            raise _refused(f"{others} brokers are registered here, the limit is {self.brokers_max}")
        servers = registration.filter_server_list
        if len(servers) > self.filter_servers_max:
            raise _refused(
                f"{len(servers)} filter servers, the limit is {self.filter_servers_max} per broker"
            )
        for server in servers:
            self._check_name("filter server", server)
        return self._with_possible_topics(facts, registration)

    def check_topics(self, names: Container[str], count: int, added: list[str]) -> None:
        """Check that new topics fit beside those that are known."""
        for topic in added:
            self._check_name("topic", topic)
        new = sum(topic not in names for topic in added)
        if count + new > self.topics_max:
            raise _refused(
                f"{count} topics are registered here and {new} would be new, the limit is"
                f" {self.topics_max}"
            )

    def _with_possible_topics(self, facts: BrokerFacts, registration: Registration) -> Registration:
        table = registration.topic_config_serialize_wrapper
        configs = table.topic_config_table
        impossible = [
            key
            for key, config in configs.items()
            if not 0 <= config.read_queue_nums <= QUEUES_PER_TOPIC_MAX
            or not 0 <= config.write_queue_nums <= QUEUES_PER_TOPIC_MAX
        ]
        if not impossible:
            return registration
        _log.warning(
            "broker %r: %d topics left out, each must have 0 to %d queues; the first is %r",
            facts.name,
            len(impossible),
            QUEUES_PER_TOPIC_MAX,
            impossible[0],
        )
        left_out = set(impossible)
        possible = {key: config for key, config in configs.items() if key not in left_out}
        return structs.replace(
            registration,
            topic_config_serialize_wrapper=structs.replace(table, topic_config_table=possible),
        )

    def _check_name(self, what: str, text: str) -> None:
        if len(text) > self.name_chars_max:
            raise _refused(
                f"{what} {text[:40]!r}... has {len(text)} characters, the limit is"
                f" {self.name_chars_max}"
            )


def _refused(text: str) -> Refused:
    return Refused(ResponseCode.SYSTEM_ERROR, f"not registered: {text}")
