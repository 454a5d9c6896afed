"""What is wrong with a cluster, decided from what was seen of it; nothing is asked here."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from ipaddress import ip_address
from typing import Final

from downrange.admin.brokers import BrokerFacts
from downrange.admin.layout import BrokerAddress, Layout
from downrange.model.names import is_retry_topic
from downrange.model.topics import MASTER_ID, Permission
from downrange.protocol.bodies.heartbeat import Subscription
from downrange.protocol.bodies.route import RefusedRegistration, TopicRoute
from downrange.protocol.errors import ProtocolError
from downrange.protocol.hosts import parse_address

# RocketMQ's own marks: from the first on it deletes old files early, from the last on it takes no
# messages (diskMaxUsedSpaceRatio, diskSpaceCleanForciblyRatio, diskSpaceWarningLevelRatio).
DISK_EARLY: Final = 0.75
DISK_FORCED: Final = 0.85
DISK_FULL: Final = 0.90
SKEW_MS_MAX: Final = 5_000


class Severity(StrEnum):
    """How bad it is."""

    ERROR = "error"
    WARNING = "warning"


@dataclass(frozen=True, slots=True)
class Finding:
    """Something that is wrong, with whom, and what helps."""

    severity: Severity
    check: str
    subject: str
    text: str
    remedy: str


def no_name_server(address: str, cause: str) -> Finding:
    """Nobody answers there."""
    return Finding(
        Severity.ERROR,
        "name-server",
        address,
        f"does not answer: {cause}",
        "check host and port (9876 unless configured), that a name server runs there and that no "
        "firewall is between",
    )


def not_a_name_server(address: str) -> Finding:
    """Somebody answers, but not as a name server does."""
    return Finding(
        Severity.ERROR,
        "name-server",
        address,
        "answers, but is no name server; it is probably a broker",
        "give the port of the name server, 9876 unless configured; brokers have 10911",
    )


def differing_layouts(layouts: Mapping[str, Layout]) -> list[Finding]:
    """Name servers that know other brokers than the rest."""
    everything = {broker for layout in layouts.values() for broker in layout.brokers}
    found = []
    for address, layout in layouts.items():
        missing = sorted(broker.name for broker in everything.difference(layout.brokers))
        if missing:
            found.append(
                Finding(
                    Severity.WARNING,
                    "name-server",
                    address,
                    f"does not know {', '.join(missing)}, which another name server knows",
                    "give every broker all name servers (namesrvAddr); a broker that just started "
                    "needs a moment",
                )
            )
    return found


def name_clashes(layouts: Mapping[str, Layout]) -> list[Finding]:
    """Brokers of one name and id that different name servers know at different addresses."""
    addresses: dict[tuple[str, int], set[str]] = {}
    for layout in layouts.values():
        for broker in layout.brokers:
            addresses.setdefault((broker.name, broker.broker_id), set()).add(broker.address)
    return [
        _clash(name, broker_id, f"is registered at {' and at '.join(sorted(at))}")
        for (name, broker_id), at in addresses.items()
        if len(at) > 1
    ]


def refused_registration(refused: RefusedRegistration) -> Finding:
    """A broker that a name server refuses because a live one has its name and id."""
    text = (
        f"is registered at {refused.holder_addr}; another broker at {refused.refused_addr} tries to"
        " register under the same name and id and is refused"
    )
    return _clash(refused.broker_name, refused.broker_id, text)


def reported_clash(broker: BrokerAddress, facts: BrokerFacts) -> Finding | None:
    """What a broker itself has noticed of another one with its name and id."""
    text = facts.registration_clash
    return None if text is None else _clash(broker.name, broker.broker_id, f"reports: {text}")


def store_damage(broker: str, facts: BrokerFacts) -> Finding | None:
    """Damage that the broker's scrubber has found in its store."""
    text = facts.store_damage
    if text is None:
        return None
    return Finding(
        Severity.ERROR,
        "store-damage",
        broker,
        text,
        "check the disk; stop the broker and run `downrange store verify` to see all of it",
    )


def _clash(name: str, broker_id: int, text: str) -> Finding:
    return Finding(
        Severity.ERROR,
        "broker-name",
        f"{name} (id {broker_id})",
        text,
        "give each broker its own brokerName, or its own brokerId if it is a slave",
    )


def no_brokers(name_servers: Sequence[str]) -> Finding:
    """A cluster without anybody."""
    return Finding(
        Severity.ERROR,
        "brokers",
        ", ".join(name_servers),
        "no broker is registered",
        "start one and give it this name server: downrange broker -n ADDRESS (namesrvAddr)",
    )


def unreachable(broker: BrokerAddress, cause: str, name_servers: Sequence[str]) -> Finding:
    """A broker that does not answer where it says it does."""
    remedy = "is the broker running, and may this machine connect to that address?"
    if _is_elsewhere(broker.address, name_servers):
        remedy = (
            "the address is private to the broker's own machine or container; set brokerIP1 to one "
            "that clients can reach"
        )
    return Finding(
        Severity.ERROR,
        "advertised-address",
        f"{broker.name} (id {broker.broker_id})",
        f"is registered at {broker.address}, where nobody answers: {cause}",
        remedy,
    )


def not_a_broker(broker: BrokerAddress) -> Finding:
    """Somebody else answers at the address of a broker."""
    return Finding(
        Severity.ERROR,
        "advertised-address",
        f"{broker.name} (id {broker.broker_id})",
        f"is registered at {broker.address}, where something else than a broker answers",
        "the listenPort of the broker and the port that is forwarded to it must be the same",
    )


def loopback(broker: BrokerAddress, name_servers: Sequence[str]) -> Finding | None:
    """A broker that tells others an address which means themselves."""
    if not _is_loopback(broker.address) or all(_is_loopback(one) for one in name_servers):
        return None
    return Finding(
        Severity.WARNING,
        "advertised-address",
        f"{broker.name} (id {broker.broker_id})",
        f"tells clients to connect to {broker.address}, which on another machine is that machine",
        "set brokerIP1 to an address that clients can reach",
    )


def not_ready(broker: str, facts: BrokerFacts) -> Finding | None:
    """What the broker itself says keeps it from serving clients."""
    if facts.not_ready is None:
        return None
    remedy = "remove the cause; the broker's /readyz and its log say more"
    return Finding(Severity.ERROR, "not-ready", broker, facts.not_ready, remedy)


def disk(broker: str, facts: BrokerFacts) -> Finding | None:
    """A disk that is nearly full."""
    ratio = facts.disk_ratio
    if ratio is None or ratio < DISK_EARLY:
        return None
    text = f"the disk of the commit log is {ratio:.0%} full; "
    if ratio >= DISK_FULL:
        text += "the broker takes no more messages"
    elif ratio >= DISK_FORCED:
        text += "old files are deleted, expired or not"
    else:
        text += "expired files are deleted at once, not only at night"
    severity = Severity.ERROR if ratio >= DISK_FORCED else Severity.WARNING
    remedy = "make room, or keep messages for a shorter time (fileReservedTime)"
    return Finding(severity, "disk", broker, text, remedy)


def skew(broker: str, facts: BrokerFacts, now_ms: int) -> Finding | None:
    """A clock that differs from ours; what a broker says of it is up to a second old."""
    theirs_ms = facts.clock_ms
    if theirs_ms is None:
        return None
    difference_ms = theirs_ms + 500 - now_ms
    if abs(difference_ms) <= SKEW_MS_MAX:
        return None
    word = "ahead of" if difference_ms > 0 else "behind"
    return Finding(
        Severity.WARNING,
        "clock",
        broker,
        f"its clock is {abs(difference_ms) / 1000:.0f} s {word} this machine's",
        "run NTP on both; delays, offsets by time and message traces are wrong by as much",
    )


def unusable_route(topic: str, route: TopicRoute) -> Finding | None:
    """A topic that has brokers and still cannot be written or read."""
    masters = {data.broker_name for data in route.broker_datas if MASTER_ID in data.broker_addrs}
    writable = [data for data in route.queue_datas if data.perm & Permission.WRITE]
    readable = [data for data in route.queue_datas if data.perm & Permission.READ]
    if not readable or not sum(data.read_queue_nums for data in readable):
        text, remedy = "cannot be read: no broker gives it read permission and a queue", "perm"
    elif not writable or not sum(data.write_queue_nums for data in writable):
        text, remedy = "cannot be written: no broker gives it write permission and a queue", "perm"
    elif not masters.intersection(data.broker_name for data in writable):
        text = "cannot be written: none of its brokers has a living master"
        remedy = "start the master again: " + ", ".join(
            sorted(data.broker_name for data in writable)
        )
    else:
        return None
    if remedy == "perm":
        remedy = f"downrange topic create {topic} --permission rw changes it"
    return Finding(Severity.ERROR, "route", topic, text, remedy)


def missing_route(topic: str, holders: Sequence[str], creates: Sequence[str]) -> Finding:
    """A topic that the name servers do not know, and why."""
    if holders:
        return Finding(
            Severity.ERROR,
            "route",
            topic,
            f"has no route, though {', '.join(holders)} has it: the broker has not told the name "
            f"servers yet",
            "wait half a minute, then check that namesrvAddr of the broker names these servers",
        )
    if creates:
        text = f"does not exist; the first send creates it at {', '.join(creates)}"
        remedy = f"send a message, or: downrange topic create {topic}"
        return Finding(Severity.WARNING, "route", topic, text, remedy)
    return Finding(
        Severity.ERROR,
        "route",
        topic,
        "does not exist, and no broker creates topics by itself (autoCreateTopicEnable=false)",
        f"downrange topic create {topic}",
    )


def differing_subscriptions(
    group: str, of_clients: Mapping[str, Iterable[Subscription]]
) -> Finding | None:
    """Members of a group that want different things; each gets only a part, and some is lost."""
    wanted: dict[tuple[tuple[str, str, str], ...], list[str]] = {}
    for client, subscriptions in of_clients.items():
        kinds = tuple(
            sorted(
                (one.topic, one.expression_type, _normal(one))
                for one in subscriptions
                if not is_retry_topic(one.topic)
            )
        )
        wanted.setdefault(kinds, []).append(client)
    if len(wanted) <= 1:
        return None
    parts = "; ".join(
        f"{', '.join(sorted(clients))}: "
        + (", ".join(f"{topic} {expression!r}" for topic, _, expression in kinds) or "nothing")
        for kinds, clients in sorted(wanted.items())
    )
    return Finding(
        Severity.ERROR,
        "subscriptions",
        group,
        f"its members want different things ({parts}), so messages are lost",
        "give all members of a group the same topics and tags, or different groups",
    )


def _normal(subscription: Subscription) -> str:
    tags = sorted(subscription.tags_set)
    return " || ".join(tags) if tags else (subscription.sub_string or "*")


def _host(address: str) -> str:
    try:
        return parse_address(address)[0]
    except ProtocolError:
        return address


def _is_loopback(address: str) -> bool:
    host = _host(address)
    if host == "localhost":
        return True
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return False


def _is_elsewhere(address: str, name_servers: Sequence[str]) -> bool:
    """Whether an address is one that means something else here than where it was said."""
    if _host(address) in {_host(one) for one in name_servers}:
        return False
    try:
        return ip_address(_host(address)).is_private
    except ValueError:
        return False
