"""A client's life on a broker: heartbeats, leaving, who else is here, would my filter do?"""

from collections.abc import Callable, Coroutine, Iterable

from downrange.broker.client_limits import check_heartbeat
from downrange.broker.consumer_table import ConsumerTable
from downrange.broker.group_table import GroupTable
from downrange.broker.producer_table import ProducerTable
from downrange.broker.registration import Announced
from downrange.broker.table_saver import Durable
from downrange.broker.topic_table import TopicTable
from downrange.model.names import retry_topic
from downrange.protocol.bodies.consumer import ConsumerList
from downrange.protocol.bodies.heartbeat import (
    CheckClientConfig,
    ConsumerGroup,
    Heartbeat,
    Subscription,
    decode_heartbeat,
)
from downrange.protocol.bodies.json_body import decode_body, encode_body
from downrange.protocol.command import Command, response
from downrange.protocol.headers.client import (
    GetConsumerListRequest,
    HeartbeatResponse,
    UnregisterClientRequest,
)
from downrange.protocol.headers.fields import decode_header, encode_header
from downrange.protocol.request_codes import RequestCode
from downrange.protocol.response_codes import ResponseCode
from downrange.remoting.connection import Answer, Connection, Handler
from downrange.remoting.errors import Refused
from downrange.runtime.slices import Steps, at_once, in_slices

UNIT_SUBSCRIPTION_FLAG = 2
GROUPS_AT_ONCE_MAX = 200  # a new one takes about 50 us

# Raises `Refused` for a subscription that this broker cannot filter by.
CheckSubscription = Callable[[Subscription], object]
# Takes note of what a group subscribes by expressions that are to outlive its clients.
KeepFilters = Callable[[str, Iterable[Subscription]], None]


class ClientHandler:
    """Serves HEART_BEAT, UNREGISTER_CLIENT, GET_CONSUMER_LIST_BY_GROUP, CHECK_CLIENT_CONFIG."""

    def __init__(
        self,
        topics: TopicTable,
        groups: GroupTable,
        consumers: ConsumerTable,
        producers: ProducerTable,
        check_subscription: CheckSubscription,
        announced: Announced,
        durable: Durable,
        keep_filters: KeepFilters = lambda _group, _subscriptions: None,
    ) -> None:
        self._topics = topics
        self._groups = groups
        self._consumers = consumers
        self._producers = producers
        self._check_subscription = check_subscription
        self._announced = announced
        self._durable = durable
        self._keep_filters = keep_filters

    def routes(self) -> dict[int, Handler]:
        """Which codes this serves."""
        return {
            RequestCode.HEART_BEAT: self.heartbeat,
            RequestCode.UNREGISTER_CLIENT: self.unregister,
            RequestCode.GET_CONSUMER_LIST_BY_GROUP: self.list_consumers,
            RequestCode.CHECK_CLIENT_CONFIG: self.check_config,
        }

    def heartbeat(
        self, request: Command, connection: Connection
    ) -> Answer | Coroutine[None, None, Answer]:
        """Take note of all groups of a client; a group that may not exist is passed over.

        Very many groups are registered in slices, and others are served between them. The first
        client of a group is answered when the group and its retry topic are on disk, one save for
        the groups of a slice, and the topic has a route: the client asks for it next, and would ask
        again only much later.
        """
        heartbeat = decode_heartbeat(request.body)
        check_heartbeat(heartbeat)
        steps = self._register(request, connection, heartbeat)
        if len(heartbeat.consumer_data_set) + len(heartbeat.producer_data_set) > GROUPS_AT_ONCE_MAX:
            return self._heartbeat_in_slices(steps, request)
        return self._answer(request, *at_once(steps))

    async def _heartbeat_in_slices(
        self, steps: Steps[tuple[bool, bool]], request: Command
    ) -> Answer:
        answer = self._answer(request, *await in_slices(steps))
        return answer if isinstance(answer, Command) else await answer

    def _register(
        self, request: Command, connection: Connection, heartbeat: Heartbeat
    ) -> Steps[tuple[bool, bool]]:
        """Whether the broker needs the subscriptions, and whether groups are not durable yet."""
        # A client of heartbeat v1 ignores this field; v2 sends everything again when it is true.
        needs_subscriptions = heartbeat.heartbeat_fingerprint == 0
        has_new = False
        for consumer in heartbeat.consumer_data_set:
            if connection.is_closed:
                break  # nobody would unregister it
            if heartbeat.without_sub and not self._consumers.knows_subscriptions(
                connection, consumer.group_name, heartbeat.heartbeat_fingerprint
            ):
                needs_subscriptions = True
            self._register_consumer(request, connection, heartbeat, consumer)
            has_new |= not (
                self._groups.is_durable(consumer.group_name)
                and self._topics.is_durable(retry_topic(consumer.group_name))
            )
            yield
        for producer in heartbeat.producer_data_set:
            if connection.is_closed:
                break
            self._producers.register(
                connection,
                heartbeat.client_id,
                producer.group_name,
                language=request.language,
                version=request.version,
            )
            yield
        return needs_subscriptions, has_new

    def _answer(
        self, request: Command, needs_subscriptions: bool, has_new: bool
    ) -> Command | Coroutine[None, None, Command]:
        fields = HeartbeatResponse(
            supports_heartbeat_v2=True, subscription_changed=needs_subscriptions
        )
        answer = response(request, ResponseCode.SUCCESS, ext_fields=encode_header(fields))
        return self._once_durable(answer) if has_new else answer

    async def _once_durable(self, answer: Command) -> Command:
        await self._durable()
        await self._announced()
        return answer

    def unregister(self, request: Command, connection: Connection) -> Answer:
        """A client leaves; the others of its group hear of it at once."""
        header = decode_header(UnregisterClientRequest, request.ext_fields)
        if header.producer_group:
            self._producers.unregister(connection, header.producer_group)
        if header.consumer_group:
            self._consumers.unregister(connection, header.consumer_group)
        return response(request, ResponseCode.SUCCESS)

    def list_consumers(self, request: Command, _: Connection) -> Answer:
        """Who is in a group."""
        group = decode_header(GetConsumerListRequest, request.ext_fields).consumer_group
        client_ids = self._consumers.client_ids(group)
        if not client_ids:
            raise Refused(ResponseCode.SYSTEM_ERROR, f"no consumer for this group, {group}")
        body = encode_body(ConsumerList(consumer_id_list=tuple(client_ids)))
        return response(request, ResponseCode.SUCCESS, body=body)

    def check_config(self, request: Command, _: Connection) -> Answer:
        """Could this broker filter by the client's subscription?"""
        subscription = decode_body(CheckClientConfig, request.body).subscription_data
        if subscription is not None and subscription.expression_type not in ("", "TAG"):
            self._check_subscription(subscription)
        return response(request, ResponseCode.SUCCESS)

    def _register_consumer(
        self,
        request: Command,
        connection: Connection,
        heartbeat: Heartbeat,
        consumer: ConsumerGroup,
    ) -> None:
        config = self._groups.find(consumer.group_name)
        if config is None:
            # RocketMQ answers SUCCESS, too: the pulls of this group are told why they get nothing.
            return
        subscribes_ordered_topic = None
        if not heartbeat.without_sub:
            subscribes_ordered_topic = any(
                self._topics.is_ordered(one.topic) for one in consumer.subscription_data_set
            )
        self._topics.create_for_send_back(
            retry_topic(consumer.group_name),
            config.retry_queue_nums,
            UNIT_SUBSCRIPTION_FLAG if consumer.unit_mode else 0,
            is_ordered=subscribes_ordered_topic,
        )
        self._consumers.register(
            connection,
            heartbeat.client_id,
            consumer,
            language=request.language,
            version=request.version,
            fingerprint=heartbeat.heartbeat_fingerprint,
            without_subscriptions=heartbeat.without_sub,
            notifies=config.notify_consumer_ids_changed_enable,
        )
        if not heartbeat.without_sub:
            self._keep_filters(consumer.group_name, consumer.subscription_data_set)
