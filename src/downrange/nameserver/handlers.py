"""What a name server answers, by request code."""

import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final

from msgspec import structs

from downrange.model.topics import DataVersion
from downrange.nameserver.broker_names import BrokerFacts, MinBrokerIdNotice
from downrange.nameserver.current_settings import CurrentSettings
from downrange.nameserver.kv_table import ORDER_NAMESPACE, KvLimitError, KvTable
from downrange.nameserver.live_brokers import BrokerAddress
from downrange.nameserver.name_clashes import Clash
from downrange.nameserver.registration_limits import RegistrationLimits
from downrange.nameserver.route_table import RouteTable
from downrange.nameserver.route_view import with_acting_masters, within_zone
from downrange.protocol.bodies import topics as topic_bodies
from downrange.protocol.bodies.json_body import decode_body, encode_body
from downrange.protocol.bodies.registration import Registration, body_crc, decode_registration
from downrange.protocol.bodies.route import (
    BrokerMembers,
    BrokerMembersResponse,
    TopicRoute,
    encode_route,
)
from downrange.protocol.bodies.topics import TopicList
from downrange.protocol.command import Command, response
from downrange.protocol.headers import nameserver as headers
from downrange.protocol.headers.fields import Header, decode_header, encode_header
from downrange.protocol.headers.topic import GetRouteRequest
from downrange.protocol.request_codes import RequestCode as Code
from downrange.protocol.response_codes import ResponseCode
from downrange.remoting.connection import Answer, Connection, Handler
from downrange.remoting.errors import Refused
from downrange.runtime.clock import Clock

_log = logging.getLogger(__name__)

ZONE_NAME: Final = "__ZONE_NAME"
ZONE_MODE: Final = "__ZONE_MODE"
# Bits of a topic's system flag: the topic belongs to a unit, has subscribers in other units.
UNIT: Final = 1
UNIT_SUB: Final = 2


class NameServerHandlers:
    """Turns requests into questions to the tables and into changes of them.

    `notify` gets what brokers should hear about the lowest id of their name.
    """

    def __init__(
        self,
        table: RouteTable,
        kv: KvTable,
        settings: CurrentSettings,
        clock: Clock,
        notify: Callable[[MinBrokerIdNotice], None],
        limits: RegistrationLimits | None = None,
    ) -> None:
        self._limits = limits or RegistrationLimits()
        self._table = table
        self._kv = kv
        self._settings = settings
        self._clock = clock
        self._notify = notify
        self._started_ms = self._now_ms()

    def routes(self) -> dict[int, Handler]:
        """The handlers by request code."""
        return {
            Code.PUT_KV_CONFIG: self._put_kv,
            Code.GET_KV_CONFIG: self._get_kv,
            Code.DELETE_KV_CONFIG: self._delete_kv,
            Code.GET_KVLIST_BY_NAMESPACE: self._get_kv_list,
            Code.REGISTER_BROKER: self._register_broker,
            Code.UNREGISTER_BROKER: self._unregister_broker,
            Code.QUERY_DATA_VERSION: self._query_data_version,
            Code.BROKER_HEARTBEAT: self._heartbeat,
            Code.GET_BROKER_MEMBER_GROUP: self._get_members,
            Code.GET_ROUTEINFO_BY_TOPIC: self._get_route,
            Code.GET_BROKER_CLUSTER_INFO: self._get_cluster_info,
            Code.WIPE_WRITE_PERM_OF_BROKER: self._wipe_write_permission,
            Code.ADD_WRITE_PERM_OF_BROKER: self._add_write_permission,
            Code.GET_ALL_TOPIC_LIST_FROM_NAMESERVER: self._get_all_topics,
            Code.DELETE_TOPIC_IN_NAMESRV: self._delete_topic,
            Code.REGISTER_TOPIC_IN_NAMESRV: self._register_topic,
            Code.GET_TOPICS_BY_CLUSTER: self._get_topics_of_cluster,
            Code.GET_SYSTEM_TOPIC_LIST_FROM_NS: self._get_system_topics,
            Code.GET_UNIT_TOPIC_LIST: self._topics_with(UNIT, UNIT),
            Code.GET_HAS_UNIT_SUB_TOPIC_LIST: self._topics_with(UNIT_SUB, UNIT_SUB),
            Code.GET_HAS_UNIT_SUB_UNUNIT_TOPIC_LIST: self._topics_with(UNIT | UNIT_SUB, UNIT_SUB),
            Code.UPDATE_NAMESRV_CONFIG: self._update_config,
            Code.GET_NAMESRV_CONFIG: self._get_config,
        }

    # --- brokers ---------------------------------------------------------------------------

    def _register_broker(self, request: Command, connection: Connection) -> Answer:
        header = decode_header(headers.RegisterBrokerRequest, request.ext_fields)
        body = request.body or b""
        if header.body_crc32 and header.body_crc32 != body_crc(body):
            raise Refused(
                ResponseCode.SYSTEM_ERROR,
                f"crc32 not match: the header says {header.body_crc32}, the body has"
                f" {body_crc(body)}; it was damaged on the way",
            )
        registration = Registration()
        if body:
            registration = decode_registration(body, compressed=header.compressed)
        facts = BrokerFacts(
            cluster=header.cluster_name,
            name=header.broker_name,
            broker_id=header.broker_id,
            address=header.broker_addr,
            ha_address=header.ha_server_addr,
            zone=(request.ext_fields or {}).get(ZONE_NAME),
            acting_master=header.enable_acting_master,
            timeout_ms=header.heartbeat_timeout_millis,
        )
        live = self._table.live
        others = len(live) - (live.get(facts.where) is not None)
        registration = self._limits.check_broker(facts, registration, others)
        self._check_topics(list(registration.topic_config_serialize_wrapper.topic_config_table))
        settings = self._settings.now
        result = self._table.register(
            facts,
            registration,
            connection,
            self._now_ms(),
            delete_missing_topics=settings.delete_topic_with_broker_registration,
        )
        if result is None:
            raise Refused(
                ResponseCode.SYSTEM_ERROR,
                f"register broker failed: {facts.name} with id {facts.broker_id} is not known yet"
                " and must register all its topics before it may register a single one",
            )
        if isinstance(result, Clash):
            raise Refused(ResponseCode.SYSTEM_ERROR, str(result))
        if result.notice is not None:
            self._notify(result.notice)
        orders = None
        if settings.return_order_topic_config_to_broker:
            orders = self._kv.namespace(ORDER_NAMESPACE)
        return _answer(
            request,
            headers.RegisterBrokerResponse(
                ha_server_addr=result.ha_address, master_addr=result.master_address
            ),
            body=None if orders is None else encode_body(topic_bodies.KvTable(table=orders)),
        )

    def _unregister_broker(self, request: Command, connection: Connection) -> Answer:
        header = decode_header(headers.UnregisterBrokerRequest, request.ext_fields)
        known = self._table.live.get(BrokerAddress(header.cluster_name, header.broker_addr))
        if known is not None and known.peer is not connection:
            # A second broker on the same port, Apache's among them, fails to start and then
            # unregisters the healthy one. Success is answered: it is no business of the asker.
            _log.warning(
                "broker %s at %s: request of %s to unregister it ignored, it is registered over"
                " another connection",
                header.broker_name,
                header.broker_addr,
                connection.address,
            )
            return _answer(request)
        notice = self._table.unregister(
            header.cluster_name, header.broker_name, header.broker_id, header.broker_addr
        )
        if notice is not None:
            self._notify(notice)
        return _answer(request)

    def _query_data_version(self, request: Command, _: Connection) -> Answer:
        header = decode_header(headers.QueryDataVersionRequest, request.ext_fields)
        version = decode_body(DataVersion, request.body) if request.body else None
        where = BrokerAddress(header.cluster_name, header.broker_addr)
        live = self._table.live
        live.heard(where, self._now_ms())
        known = live.get(where)
        return _answer(
            request,
            headers.QueryDataVersionResponse(changed=live.has_changed(where, version)),
            body=None if known is None else encode_body(known.data_version),
        )

    def _heartbeat(self, request: Command, _: Connection) -> Answer:
        header = decode_header(headers.BrokerHeartbeatRequest, request.ext_fields)
        where = BrokerAddress(header.cluster_name, header.broker_addr)
        self._table.live.heard(where, self._now_ms())
        return _answer(request)

    def _get_members(self, request: Command, _: Connection) -> Answer:
        header = decode_header(headers.GetBrokerMemberGroupRequest, request.ext_fields)
        members = BrokerMembers(
            cluster=header.cluster_name,
            broker_name=header.broker_name,
            broker_addrs=self._table.members(header.broker_name),
        )
        body = encode_body(BrokerMembersResponse(broker_member_group=members))
        return _answer(request, body=body)

    def _get_cluster_info(self, request: Command, _: Connection) -> Answer:
        return _answer(request, body=encode_body(self._table.cluster_info()))

    def _wipe_write_permission(self, request: Command, connection: Connection) -> Answer:
        header = decode_header(headers.BrokerPermissionRequest, request.ext_fields)
        count = self._table.topics.wipe_write_permission(header.broker_name)
        _log_permission("wiped", header.broker_name, count, connection)
        return _answer(request, headers.WipeWritePermissionResponse(wipe_topic_count=count))

    def _add_write_permission(self, request: Command, connection: Connection) -> Answer:
        header = decode_header(headers.BrokerPermissionRequest, request.ext_fields)
        count = self._table.topics.add_write_permission(header.broker_name)
        _log_permission("added", header.broker_name, count, connection)
        return _answer(request, headers.AddWritePermissionResponse(add_topic_count=count))

    # --- topics ----------------------------------------------------------------------------

    def _get_route(self, request: Command, _: Connection) -> Answer:
        header = decode_header(GetRouteRequest, request.ext_fields)
        settings = self._settings.now
        if settings.need_wait_for_service:
            ready_ms = self._started_ms + 1000 * settings.wait_seconds_for_service
            if self._now_ms() < ready_ms:
                raise Refused(
                    ResponseCode.SYSTEM_ERROR,
                    "name server not ready: it waits for brokers to register for another"
                    f" {ready_ms - self._now_ms()} ms",
                )
        route = self._table.route(header.topic)
        if route is None:
            raise Refused(ResponseCode.TOPIC_NOT_EXIST, self._no_route(header.topic))
        if settings.order_message_enable:
            order = self._kv.get(ORDER_NAMESPACE, header.topic)
            route = structs.replace(route, order_topic_conf=order)
        if settings.support_acting_master:
            route = with_acting_masters(header.topic, route)
        return _answer(
            request,
            body=encode_route(
                _near(route, request.ext_fields or {}),
                peer_version=request.version,
                accept_standard_json_only=header.accept_standard_json_only,
            ),
        )

    def _no_route(self, topic: str) -> str:
        # Users of RocketMQ suffer from one text for many causes (apache/rocketmq#504, #484), so
        # this one says what the name server does know.
        text = f"No topic route info in name server for the topic: {topic}\n"
        brokers = len(self._table.live)
        if not brokers:
            return text + "No broker is registered here: check its namesrvAddr and that it runs."
        return text + (
            f"{brokers} brokers are registered here, none with this topic: create the topic, or"
            " let brokers create it with autoCreateTopicEnable=true."
        )

    def _get_all_topics(self, request: Command, _: Connection) -> Answer:
        _check_enabled("enableAllTopicList", is_on=self._settings.now.enable_all_topic_list)
        return _topic_list(request, self._table.topics.names())

    def _get_topics_of_cluster(self, request: Command, _: Connection) -> Answer:
        _check_enabled("enableTopicList", is_on=self._settings.now.enable_topic_list)
        header = decode_header(headers.GetTopicsByClusterRequest, request.ext_fields)
        return _topic_list(request, self._table.topics_of_cluster(header.cluster))

    def _get_system_topics(self, request: Command, _: Connection) -> Answer:
        # Every broker has topics named like its cluster and like itself, for checks of its health.
        info = self._table.cluster_info()
        names = set(info.cluster_addr_table)
        names.update(*info.cluster_addr_table.values())
        addresses = [a for b in info.broker_addr_table.values() for a in b.broker_addrs.values()]
        body = TopicList(
            topic_list=tuple(sorted(names)), broker_addr=addresses[0] if addresses else None
        )
        return _answer(request, body=encode_body(body))

    def _topics_with(self, mask: int, wanted: int) -> Handler:
        def handle(request: Command, _: Connection) -> Answer:
            _check_enabled("enableTopicList", is_on=self._settings.now.enable_topic_list)
            return _topic_list(request, self._table.topics.names_with_flags(mask, wanted))

        return handle

    def _register_topic(self, request: Command, _: Connection) -> Answer:
        header = decode_header(headers.RegisterTopicRequest, request.ext_fields)
        route = decode_body(TopicRoute, request.body) if request.body else TopicRoute()
        self._check_topics([header.topic])
        if not self._table.register_topic(header.topic, route.queue_datas):
            # Apache's name server answers success too, and brokers rely on it: they register
            # everything a little later.
            names = ",".join(queue.broker_name for queue in route.queue_datas)
            _log.warning("topic of an unknown broker ignored topic=%s on=%s", header.topic, names)
        return _answer(request)

    def _check_topics(self, added: list[str]) -> None:
        self._limits.check_topics(self._table.topics, len(self._table.topics), added)

    def _delete_topic(self, request: Command, connection: Connection) -> Answer:
        header = decode_header(headers.DeleteTopicRequest, request.ext_fields)
        self._table.delete_topic(header.topic, header.cluster_name)
        _log.info("topic deleted topic=%s by=%s", header.topic, connection.address)
        return _answer(request)

    # --- the key-value table and the settings ----------------------------------------------

    def _put_kv(self, request: Command, _: Connection) -> Answer:
        header = decode_header(headers.PutKvConfigRequest, request.ext_fields)
        if not header.namespace or not header.key:
            raise Refused(ResponseCode.SYSTEM_ERROR, "namespace or key is null")
        with _disk_errors_refused():
            try:
                self._kv.put(header.namespace, header.key, header.value)
            except KvLimitError as error:
                raise Refused(ResponseCode.SYSTEM_ERROR, str(error)) from error
        return _answer(request)

    def _get_kv(self, request: Command, _: Connection) -> Answer:
        header = decode_header(headers.GetKvConfigRequest, request.ext_fields)
        value = self._kv.get(header.namespace, header.key)
        if value is None:
            remark = f"No config item, Namespace: {header.namespace} Key: {header.key}"
            raise Refused(ResponseCode.QUERY_NOT_FOUND, remark)
        return _answer(request, headers.GetKvConfigResponse(value=value))

    def _delete_kv(self, request: Command, _: Connection) -> Answer:
        header = decode_header(headers.DeleteKvConfigRequest, request.ext_fields)
        with _disk_errors_refused():
            self._kv.delete(header.namespace, header.key)
        return _answer(request)

    def _get_kv_list(self, request: Command, _: Connection) -> Answer:
        header = decode_header(headers.GetKvListRequest, request.ext_fields)
        entries = self._kv.namespace(header.namespace)
        if entries is None:
            remark = f"No config item, Namespace: {header.namespace}"
            raise Refused(ResponseCode.QUERY_NOT_FOUND, remark)
        return _answer(request, body=encode_body(topic_bodies.KvTable(table=entries)))

    def _update_config(self, request: Command, connection: Connection) -> Answer:
        if request.body:
            _log.info("settings change asked by=%s", connection.address)
            self._settings.change(request.body)
        return _answer(request)

    def _get_config(self, request: Command, _: Connection) -> Answer:
        return _answer(request, body=self._settings.text())

    def _now_ms(self) -> int:
        return int(self._clock.monotonic_s() * 1000)


def _answer(request: Command, header: Header | None = None, body: bytes | None = None) -> Command:
    fields = None if header is None else encode_header(header)
    return response(request, ResponseCode.SUCCESS, ext_fields=fields, body=body)


@contextmanager
def _disk_errors_refused() -> Iterator[None]:
    try:
        yield
    except OSError as error:
        remark = f"nothing was changed, the disk refused it: {error}"
        raise Refused(ResponseCode.SYSTEM_ERROR, remark) from error


def _topic_list(request: Command, topics: tuple[str, ...]) -> Command:
    return _answer(request, body=encode_body(TopicList(topic_list=topics)))


def _check_enabled(key: str, *, is_on: bool) -> None:
    if not is_on:
        raise Refused(ResponseCode.SYSTEM_ERROR, f"disable: {key} is false in this name server")


def _near(route: TopicRoute, fields: dict[str, str]) -> TopicRoute:
    zone = fields.get(ZONE_NAME, "")
    if fields.get(ZONE_MODE, "").lower() != "true" or not zone.strip():
        return route
    return within_zone(route, zone)


def _log_permission(what: str, name: str, count: int, connection: Connection) -> None:
    _log.info(
        "write permission %s broker=%s topics=%d by=%s", what, name, count, connection.address
    )
