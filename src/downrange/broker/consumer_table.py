"""Who consumes: the clients of each group, known by their heartbeats, and what they subscribe.

RocketMQ keeps one subscription table a group, which the last heartbeat overwrites, so clients that
subscribe differently take topics from each other and lose messages without a word. Here every
client's own subscriptions are kept; the group subscribes what any of its clients does, a pull is
filtered by the puller's own expression, and clients that differ are named in the log.
"""

import logging
from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass, field

from downrange.broker.client_limits import CLIENT_LIMITS, ClientLimits
from downrange.broker.clients import CLIENT_EXPIRY_MS, ConnectedClient
from downrange.broker.subscription_check import SubscriptionDifference, find_differences
from downrange.protocol.bodies.heartbeat import ConsumerGroup, Subscription
from downrange.protocol.languages import LanguageCode
from downrange.remoting.connection import Connection
from downrange.runtime.clock import Clock

_log = logging.getLogger(__name__)

SUBSCRIPTION_EXPIRY_MS = 600_000
BROADCASTING = "BROADCASTING"

# Gets a group and whom to tell that its members or topics are others now.
IdsListener = Callable[[str, tuple[Connection, ...]], None]


@dataclass(slots=True, kw_only=True)
class Consumer(ConnectedClient):
    """A client as a member of one group; no subscriptions are known after a light heartbeat."""

    subscriptions: dict[str, Subscription] | None = None
    fingerprint: int = 0
    subscription_chars: int = 0


@dataclass(slots=True, kw_only=True)
class ConsumerGroupState:
    """A group with at least one client; type, model and start are as the last heartbeat said."""

    name: str
    consume_type: str | None = None
    message_model: str | None = None
    consume_from_where: str | None = None
    notifies: bool = True
    clients: dict[Connection, Consumer] = field(default_factory=dict)
    subscriptions: dict[str, Subscription] = field(default_factory=dict)
    differences: tuple[SubscriptionDifference, ...] = ()

    @property
    def client_ids(self) -> list[str]:
        """Who is in the group; a client with two connections counts once."""
        return sorted({client.client_id for client in self.clients.values()})

    @property
    def is_broadcasting(self) -> bool:
        """Whether every client gets every message."""
        return self.message_model == BROADCASTING


class ConsumerTable:
    """The groups that have clients. Owned by the thread of the broker.

    `on_ids_changed` is called at once when somebody joins, leaves or is lost, and when the group
    subscribes other topics; never for groups that broadcast, where nothing is shared out.
    `on_group_gone` hears of a group that has lost its last client.
    """

    def __init__(
        self,
        clock: Clock,
        *,
        client_expiry_ms: int = CLIENT_EXPIRY_MS,
        subscription_expiry_ms: int = SUBSCRIPTION_EXPIRY_MS,
        limits: ClientLimits = CLIENT_LIMITS,
    ) -> None:
        self._clock = clock
        self._limits = limits
        self._member_count = 0
        self._chars_by_connection: dict[Connection, int] = {}
        self.client_expiry_ms = client_expiry_ms
        self._subscription_expiry_s = subscription_expiry_ms / 1000
        self._groups: dict[str, ConsumerGroupState] = {}
        self._groups_by_connection: dict[Connection, set[str]] = {}
        self._learned: dict[tuple[str, str], tuple[Subscription, float]] = {}
        self.on_ids_changed: list[IdsListener] = []
        self.on_group_gone: list[Callable[[str], None]] = []

    # --- heartbeats ------------------------------------------------------------------------

    def register(
        self,
        connection: Connection,
        client_id: str,
        consumer: ConsumerGroup,
        *,
        language: LanguageCode = LanguageCode.OTHER,
        version: int = 0,
        fingerprint: int = 0,
        without_subscriptions: bool = False,
        notifies: bool = True,
    ) -> bool:
        """Take note of a heartbeat; True if members or topics of the group are others now.

        `Refused` if the client asks for more than the limits allow; nothing has changed then.
        """
        subscriptions = None if without_subscriptions else consumer.subscription_data_set
        chars = self._check_limits(connection, client_id, consumer.group_name, subscriptions)
        group = self._groups.get(consumer.group_name)
        if group is None:
            group = self._groups[consumer.group_name] = ConsumerGroupState(name=consumer.group_name)
        group.consume_type = consumer.consume_type
        group.message_model = consumer.message_model
        group.consume_from_where = consumer.consume_from_where
        group.notifies = notifies
        before = group.client_ids
        client = group.clients.get(connection)
        if client is None or client.client_id != client_id:
            known_chars = 0 if client is None else client.subscription_chars
            self._member_count += client is None
            client = group.clients[connection] = Consumer(
                connection=connection,
                client_id=client_id,
                language=language,
                version=version,
                subscription_chars=known_chars,
            )
            self._groups_by_connection.setdefault(connection, set()).add(group.name)
        client.touch(self._clock)
        has_other_topics = False
        if subscriptions is not None:
            has_other_topics = self._subscribe(group, client, subscriptions)
            client.fingerprint = fingerprint
            self._note_chars(client, chars)
        has_changed = has_other_topics or group.client_ids != before
        if has_changed:
            self._announce(group)
        return has_changed

    def knows_subscriptions(self, connection: Connection, group: str, fingerprint: int) -> bool:
        """Whether the client's last full heartbeat had this fingerprint."""
        state = self._groups.get(group)
        client = state.clients.get(connection) if state is not None else None
        return (
            client is not None
            and client.subscriptions is not None
            and client.fingerprint == fingerprint
        )

    def unregister(self, connection: Connection, group: str) -> bool:
        """A client leaves; False if it was not there."""
        return self._remove(group, connection, "left")

    def on_close(self, connection: Connection) -> None:
        """A connection is gone, and with it its clients."""
        for group in sorted(self._groups_by_connection.get(connection, ())):
            self._remove(group, connection, "was lost")

    def expire(self) -> list[Connection]:
        """Remove who has been silent too long; returns the connections to close."""
        now_s = self._clock.monotonic_s()
        oldest_s = now_s - self.client_expiry_ms / 1000
        expired = [
            (group.name, client.connection)
            for group in self._groups.values()
            for client in group.clients.values()
            if client.last_heartbeat_s < oldest_s
        ]
        for group_name, connection in expired:
            self._remove(group_name, connection, "sends no heartbeats")
        oldest_s = now_s - self._subscription_expiry_s
        for key in [key for key, (_, seen_s) in self._learned.items() if seen_s < oldest_s]:
            del self._learned[key]
        return list(dict.fromkeys(connection for _, connection in expired))

    def learn(self, group: str, subscription: Subscription) -> None:
        """Take note of a subscription that came with a pull or pop, without a heartbeat."""
        key = (group, subscription.topic)
        if key not in self._learned and len(self._learned) >= self._limits.learned_max:
            del self._learned[next(iter(self._learned))]
        self._learned[key] = (subscription, self._clock.monotonic_s())

    # --- questions -------------------------------------------------------------------------

    def group(self, group: str) -> ConsumerGroupState | None:
        """A group that has clients."""
        return self._groups.get(group)

    def groups(self) -> list[ConsumerGroupState]:
        """All groups that have clients."""
        return list(self._groups.values())

    def has_group(self, group: str) -> bool:
        """Whether a client of the group has sent a heartbeat."""
        return group in self._groups

    def is_broadcasting(self, group: str) -> bool:
        """Whether every client of the group gets every message."""
        state = self._groups.get(group)
        return state is not None and state.is_broadcasting

    def client_ids(self, group: str) -> list[str]:
        """Who is in a group, in the order in which queues are shared out."""
        state = self._groups.get(group)
        return state.client_ids if state is not None else []

    def find_client(self, group: str, client_id: str) -> Consumer | None:
        """A member of a group, on its newest connection."""
        state = self._groups.get(group)
        found = None
        for client in state.clients.values() if state is not None else ():
            if client.client_id == client_id and not client.connection.is_closed:
                found = client
        return found

    def subscription(
        self, group: str, topic: str, connection: Connection | None = None
    ) -> Subscription | None:
        """What the client on this connection wants of a topic, or else its group."""
        state = self._groups.get(group)
        if state is not None:
            client = state.clients.get(connection) if connection is not None else None
            if client is not None and client.subscriptions and topic in client.subscriptions:
                return client.subscriptions[topic]
            found = state.subscriptions.get(topic)
            if found is not None:
                return found
        learned = self._learned.get((group, topic)) if self._learned else None
        return learned[0] if learned is not None else None

    def groups_of_topic(self, topic: str) -> set[str]:
        """The groups whose clients subscribe a topic."""
        return {group.name for group in self._groups.values() if topic in group.subscriptions}

    def differences(self, group: str) -> tuple[SubscriptionDifference, ...]:
        """Where the clients of a group subscribe differently; nothing if all is well."""
        state = self._groups.get(group)
        return state.differences if state is not None else ()

    # --- inside ----------------------------------------------------------------------------

    def _check_limits(
        self,
        connection: Connection,
        client_id: str,
        group_name: str,
        subscriptions: Collection[Subscription] | None,
    ) -> int:
        """How many characters the subscriptions have; `Refused` if anything is too much."""
        self._limits.check_names(client_id, group_name)
        group = self._groups.get(group_name)
        client = group.clients.get(connection) if group is not None else None
        if client is None:
            of_connection = len(self._groups_by_connection.get(connection, ()))
            self._limits.check_members(client_id, of_connection, self._member_count)
        if subscriptions is None:
            return 0
        own_chars = 0 if client is None else client.subscription_chars
        others_chars = self._chars_by_connection.get(connection, 0) - own_chars
        return self._limits.check_subscriptions(group_name, subscriptions, others_chars)

    def _note_chars(self, client: Consumer, chars: int) -> None:
        connection = client.connection
        total = self._chars_by_connection.get(connection, 0) + chars - client.subscription_chars
        client.subscription_chars = chars
        if total:
            self._chars_by_connection[connection] = total
        else:
            self._chars_by_connection.pop(connection, None)

    def _subscribe(
        self, group: ConsumerGroupState, client: Consumer, subscriptions: Iterable[Subscription]
    ) -> bool:
        new = {one.topic: one for one in subscriptions}
        old, client.subscriptions = client.subscriptions, new
        return False if new == old else self._merge(group)

    def _merge(self, group: ConsumerGroupState) -> bool:
        """Make the group's subscriptions from those of its clients; True if topics changed."""
        merged: dict[str, Subscription] = {}
        for client in group.clients.values():
            for topic, one in (client.subscriptions or {}).items():
                # RocketMQ, too, lets the newest version win where clients differ.
                if topic not in merged or one.sub_version > merged[topic].sub_version:
                    merged[topic] = one
        before, group.subscriptions = group.subscriptions, merged
        self._look_for_differences(group)
        return before.keys() != merged.keys()

    def _look_for_differences(self, group: ConsumerGroupState) -> None:
        found = find_differences(
            (client.client_id, client.subscriptions)
            for client in group.clients.values()
            if client.subscriptions is not None
        )
        before, group.differences = group.differences, found
        # That another client wants what some wanted already is not worth another line.
        if [one.wishes for one in found] == [one.wishes for one in before]:
            return
        if not found:
            _log.info("the clients of group %r subscribe the same again", group.name)
        for difference in found:
            _log.warning(
                "the clients of group %r differ, messages may be skipped: %s",
                group.name,
                difference,
            )

    def _remove(self, group_name: str, connection: Connection, reason: str) -> bool:
        group = self._groups.get(group_name)
        client = group.clients.pop(connection, None) if group is not None else None
        if group is None or client is None:
            return False
        self._member_count -= 1
        self._note_chars(client, 0)
        of_connection = self._groups_by_connection[connection]
        of_connection.discard(group_name)
        if not of_connection:
            del self._groups_by_connection[connection]
        _log.info("consumer %r of group %r %s", client.client_id, group_name, reason)
        if not group.clients:
            del self._groups[group_name]
            for listener in self.on_group_gone:
                listener(group_name)
            return True
        has_other_topics = self._merge(group)
        if has_other_topics or client.client_id not in group.client_ids:
            self._announce(group)
        return True

    def _announce(self, group: ConsumerGroupState) -> None:
        if not group.notifies or group.is_broadcasting:
            return
        connections = tuple(group.clients)
        for listener in self.on_ids_changed:
            listener(group.name, connections)
