"""Every request code of the name server, over a connection in memory."""

import zlib
from dataclasses import replace
from pathlib import Path

import pytest
from msgspec import structs
from unit.nameserver.building import (
    MASTER,
    SLAVE,
    VERSION,
    Cluster,
    pass_time,
    register_fields,
    registration,
    with_name_server,
)

from downrange.model.topics import DataVersion, TopicConfig
from downrange.nameserver.settings import NameServerSettings
from downrange.protocol.bodies.json_body import decode_body, encode_body
from downrange.protocol.bodies.registration import encode_registration
from downrange.protocol.bodies.route import (
    BrokerMembersResponse,
    ClusterInfo,
    QueueData,
    TopicRoute,
    encode_route,
)
from downrange.protocol.bodies.topics import KvTable, TopicList
from downrange.protocol.command import Command
from downrange.protocol.request_codes import RequestCode as Code
from downrange.protocol.response_codes import ResponseCode
from downrange.protocol.versions import version_number

SETTINGS = NameServerSettings()


def topics_of(answer: Command) -> tuple[str, ...]:
    return decode_body(TopicList, answer.body).topic_list


def test_registration_is_taken_plain_and_compressed_and_by_its_checksum(tmp_path: Path) -> None:
    async def test(cluster: Cluster) -> None:
        body = encode_registration(registration(), compressed=True)
        crc = str(zlib.crc32(body) & 0x7FFF_FFFF)
        fields = register_fields(MASTER, compressed="true", bodyCrc32=crc)
        good = await cluster.ask(Code.REGISTER_BROKER, fields, body)
        assert (good.code, good.ext_fields, good.body) == (0, {}, None)
        bad = await cluster.ask(Code.REGISTER_BROKER, {**fields, "bodyCrc32": "77"}, body)
        assert bad.code == ResponseCode.SYSTEM_ERROR
        assert (bad.remark or "").startswith("crc32 not match: the header says 77")
        garbage = await cluster.ask(Code.REGISTER_BROKER, register_fields(MASTER), b"garbage")
        assert garbage.code == ResponseCode.SYSTEM_ERROR
        assert await cluster.route("T") is not None
        answer = await cluster.register(SLAVE)
        assert answer.ext_fields == {
            "haServerAddr": MASTER.ha_address, "masterAddr": MASTER.address
        }  # fmt: skip

    with_name_server(tmp_path, test)


def test_a_registration_without_body_counts_as_sign_of_life(tmp_path: Path) -> None:
    async def test(cluster: Cluster) -> None:
        assert (await cluster.ask(Code.REGISTER_BROKER, register_fields(MASTER))).code == 0
        info = decode_body(ClusterInfo, (await cluster.ask(Code.GET_BROKER_CLUSTER_INFO)).body)
        assert info.broker_addr_table["b"].broker_addrs == {0: MASTER.address}
        assert info.cluster_addr_table == {"c": ("b",)}

    with_name_server(tmp_path, test)


def test_a_single_topic_of_an_unknown_broker_is_refused_with_the_remedy(tmp_path: Path) -> None:
    async def test(cluster: Cluster) -> None:
        answer = await cluster.register(MASTER, registration("T"))
        assert answer.code == ResponseCode.SYSTEM_ERROR
        assert "must register all its topics before" in (answer.remark or "")

    with_name_server(tmp_path, test)


def test_a_registering_broker_gets_the_order_conf_unless_switched_off(tmp_path: Path) -> None:
    async def put(cluster: Cluster) -> None:
        fields = {"namespace": "ORDER_TOPIC_CONFIG", "key": "T", "value": "b:4"}
        assert (await cluster.ask(Code.PUT_KV_CONFIG, fields)).code == 0
        body = (await cluster.register(MASTER)).body
        assert decode_body(KvTable, body).table == {"T": "b:4"}
        route = await cluster.route("T")
        assert route is not None
        assert route.order_topic_conf is None

    async def stays(cluster: Cluster) -> None:
        assert (await cluster.register(MASTER)).body is None
        route = await cluster.route("T")
        assert route is not None
        assert route.order_topic_conf == "b:4"

    with_name_server(tmp_path, put)
    other = replace(SETTINGS, order_message_enable=True, return_order_topic_config_to_broker=False)
    with_name_server(tmp_path, stays, other)


def test_a_broker_asks_whether_it_must_register_again(tmp_path: Path) -> None:
    async def ask(cluster: Cluster, version: DataVersion | None) -> Command:
        body = None if version is None else encode_body(version)
        return await cluster.ask(Code.QUERY_DATA_VERSION, register_fields(MASTER), body)

    async def test(cluster: Cluster) -> None:
        first = await ask(cluster, VERSION)
        assert (first.ext_fields, first.body) == ({"changed": "true"}, None)
        await cluster.register(MASTER)
        same = await ask(cluster, VERSION)
        assert (same.ext_fields, same.body) == ({"changed": "false"}, encode_body(VERSION))
        newer = await ask(cluster, VERSION.next(9))
        assert (newer.ext_fields, newer.body) == ({"changed": "true"}, encode_body(VERSION))
        assert (await ask(cluster, None)).ext_fields == {"changed": "true"}

    with_name_server(tmp_path, test)


def test_unregistered_brokers_are_gone_at_once(tmp_path: Path) -> None:
    async def test(cluster: Cluster) -> None:
        await cluster.register(MASTER)
        answer = await cluster.ask(Code.UNREGISTER_BROKER, register_fields(MASTER))
        assert answer.code == 0
        assert await cluster.route("T") is None

    with_name_server(tmp_path, test)


def test_members_of_a_name(tmp_path: Path) -> None:
    async def test(cluster: Cluster) -> None:
        await cluster.register(SLAVE)
        await cluster.register(MASTER)
        for name, addresses in (("b", {0: MASTER.address, 1: SLAVE.address}), ("nix", {})):
            fields = {"clusterName": "c", "brokerName": name}
            answer = await cluster.ask(Code.GET_BROKER_MEMBER_GROUP, fields)
            group = decode_body(BrokerMembersResponse, answer.body).broker_member_group
            assert group is not None
            assert (group.broker_name, group.broker_addrs) == (name, addresses)

    with_name_server(tmp_path, test)


def test_a_missing_route_says_what_the_name_server_does_know(tmp_path: Path) -> None:
    async def test(cluster: Cluster) -> None:
        first = await cluster.ask(Code.GET_ROUTEINFO_BY_TOPIC, {"topic": "X"})
        assert first.code == ResponseCode.TOPIC_NOT_EXIST
        text = "No topic route info in name server for the topic: X\n"
        assert (first.remark or "").startswith(text + "No broker is registered here")
        await cluster.register(MASTER)
        second = await cluster.ask(Code.GET_ROUTEINFO_BY_TOPIC, {"topic": "X"})
        assert (second.remark or "").startswith(text + "1 brokers are registered here")

    with_name_server(tmp_path, test)


def test_a_route_is_strict_json_for_new_peers_and_for_those_who_ask(tmp_path: Path) -> None:
    async def test(cluster: Cluster) -> None:
        await cluster.register(MASTER)
        strict = await cluster.ask(Code.GET_ROUTEINFO_BY_TOPIC, {"topic": "T"})
        assert b'"brokerAddrs":{"0":' in (strict.body or b"")
        connection = await cluster.client.connect("127.0.0.1:9876")
        send = connection.send
        old = version_number("4.9.3")  # our own client always says 5.5.0
        connection.send = (  # type: ignore[method-assign]
            lambda command: send(structs.replace(command, version=old))
        )
        for fields, form in (
            ({"topic": "T"}, b'"brokerAddrs":{0:'),
            ({"topic": "T", "acceptStandardJsonOnly": "true"}, b'"brokerAddrs":{"0":'),
        ):
            answer = await connection.call(Code.GET_ROUTEINFO_BY_TOPIC, fields, timeout_s=1)
            assert form in (answer.body or b"")

    with_name_server(tmp_path, test)


def test_routes_wait_for_brokers_if_told_to(tmp_path: Path) -> None:
    async def test(cluster: Cluster) -> None:
        await cluster.register(MASTER)
        early = await cluster.ask(Code.GET_ROUTEINFO_BY_TOPIC, {"topic": "T"})
        assert early.code == ResponseCode.SYSTEM_ERROR
        assert (early.remark or "").startswith("name server not ready")
        await pass_time(45.001)  # other timers may end a hair before
        assert await cluster.route("T") is not None

    with_name_server(tmp_path, test, replace(SETTINGS, need_wait_for_service=True))


def test_zones_and_acting_masters_change_what_a_client_sees(tmp_path: Path) -> None:
    async def test(cluster: Cluster) -> None:
        await cluster.register(MASTER, enableActingMaster="true", __ZONE_NAME="z1")
        await cluster.register(SLAVE, enableActingMaster="true", __ZONE_NAME="z1")
        far = await cluster.route("T", __ZONE_NAME="z2", __ZONE_MODE="true")
        assert far is not None
        assert (far.broker_datas, far.queue_datas) == ((), ())
        assert await cluster.route("T", __ZONE_NAME="z2") == await cluster.route("T")
        await cluster.ask(Code.UNREGISTER_BROKER, register_fields(MASTER))
        route = await cluster.route("T")
        assert route is not None
        assert route.broker_datas[0].broker_addrs == {0: SLAVE.address}
        assert route.queue_datas[0].perm == 4

    with_name_server(tmp_path, test, replace(SETTINGS, support_acting_master=True))


def test_write_permission_is_wiped_and_added_with_a_count(tmp_path: Path) -> None:
    async def test(cluster: Cluster) -> None:
        await cluster.register(MASTER)
        wiped = await cluster.ask(Code.WIPE_WRITE_PERM_OF_BROKER, {"brokerName": "b"})
        assert wiped.ext_fields == {"wipeTopicCount": "2"}
        route = await cluster.route("T")
        assert route is not None
        assert route.queue_datas[0].perm == 4
        added = await cluster.ask(Code.ADD_WRITE_PERM_OF_BROKER, {"brokerName": "b"})
        assert added.ext_fields == {"addTopicCount": "2"}
        route = await cluster.route("T")
        assert route is not None
        assert route.queue_datas[0].perm == 6

    with_name_server(tmp_path, test)


def test_lists_of_topics(tmp_path: Path) -> None:
    topics = [TopicConfig(topic_name=f"flag-{flag}", topic_sys_flag=flag) for flag in range(4)]

    async def test(cluster: Cluster) -> None:
        await cluster.register(MASTER, registration(*topics))
        everything = tuple(topic.topic_name for topic in topics)
        assert topics_of(await cluster.ask(Code.GET_ALL_TOPIC_LIST_FROM_NAMESERVER)) == everything
        for cluster_name, expected in (("c", everything), ("nix", ())):
            answer = await cluster.ask(Code.GET_TOPICS_BY_CLUSTER, {"cluster": cluster_name})
            assert topics_of(answer) == expected
        for code, flags in (
            (Code.GET_UNIT_TOPIC_LIST, (1, 3)),
            (Code.GET_HAS_UNIT_SUB_TOPIC_LIST, (2, 3)),
            (Code.GET_HAS_UNIT_SUB_UNUNIT_TOPIC_LIST, (2,)),
        ):
            assert topics_of(await cluster.ask(code)) == tuple(f"flag-{flag}" for flag in flags)
        system = decode_body(
            TopicList, (await cluster.ask(Code.GET_SYSTEM_TOPIC_LIST_FROM_NS)).body
        )
        assert (system.topic_list, system.broker_addr) == (("b", "c"), MASTER.address)

    with_name_server(tmp_path, test)


def test_lists_of_topics_can_be_switched_off(tmp_path: Path) -> None:
    async def test(cluster: Cluster) -> None:
        for code, key in (
            (Code.GET_ALL_TOPIC_LIST_FROM_NAMESERVER, "enableAllTopicList"),
            (Code.GET_TOPICS_BY_CLUSTER, "enableTopicList"),
            (Code.GET_UNIT_TOPIC_LIST, "enableTopicList"),
            (Code.GET_HAS_UNIT_SUB_TOPIC_LIST, "enableTopicList"),
            (Code.GET_HAS_UNIT_SUB_UNUNIT_TOPIC_LIST, "enableTopicList"),
        ):
            answer = await cluster.ask(code, {"cluster": "c"})
            assert answer.code == ResponseCode.SYSTEM_ERROR
            assert answer.remark == f"disable: {key} is false in this name server"
        assert (await cluster.ask(Code.GET_SYSTEM_TOPIC_LIST_FROM_NS)).code == 0

    off = replace(SETTINGS, enable_all_topic_list=False, enable_topic_list=False)
    with_name_server(tmp_path, test, off)


def test_a_topic_is_registered_and_deleted_alone(tmp_path: Path) -> None:
    async def test(cluster: Cluster) -> None:
        await cluster.register(MASTER)
        for name in ("b", "nix"):
            queue = QueueData(broker_name=name, read_queue_nums=1, write_queue_nums=1, perm=6)
            body = encode_route(
                TopicRoute(queue_datas=(queue,)), peer_version=0, accept_standard_json_only=None
            )
            fields = {"topic": f"on {name}"}
            assert (await cluster.ask(Code.REGISTER_TOPIC_IN_NAMESRV, fields, body)).code == 0
        assert (await cluster.ask(Code.REGISTER_TOPIC_IN_NAMESRV, {"topic": "e"})).code == 0
        assert await cluster.route("on b") is not None
        assert await cluster.route("on nix") is None
        for fields in ({"topic": "on b"}, {"topic": "T", "clusterName": "c"}):
            assert (await cluster.ask(Code.DELETE_TOPIC_IN_NAMESRV, fields)).code == 0
            assert await cluster.route(fields["topic"]) is None

    with_name_server(tmp_path, test)


def test_topics_missing_in_a_registration_go_if_told_to(tmp_path: Path) -> None:
    async def test(cluster: Cluster) -> None:
        await cluster.register(MASTER, registration("T", "U", "V"))
        await cluster.register(MASTER, registration("T", "V"))
        assert await cluster.route("U") is None
        assert await cluster.route("V") is not None

    with_name_server(tmp_path, test, replace(SETTINGS, delete_topic_with_broker_registration=True))


def test_the_key_value_table_is_put_read_listed_and_deleted(tmp_path: Path) -> None:
    async def test(cluster: Cluster) -> None:
        entry = {"namespace": "N", "key": "k"}
        assert (await cluster.ask(Code.PUT_KV_CONFIG, {**entry, "value": "v"})).code == 0
        assert (await cluster.ask(Code.GET_KV_CONFIG, entry)).ext_fields == {"value": "v"}
        listed = await cluster.ask(Code.GET_KVLIST_BY_NAMESPACE, {"namespace": "N"})
        assert listed.body == b'{"table":{"k":"v"}}'
        assert (await cluster.ask(Code.DELETE_KV_CONFIG, entry)).code == 0
        missing = await cluster.ask(Code.GET_KV_CONFIG, entry)
        assert (missing.code, missing.remark) == (22, "No config item, Namespace: N Key: k")
        no_list = await cluster.ask(Code.GET_KVLIST_BY_NAMESPACE, {"namespace": "nix"})
        assert (no_list.code, no_list.remark) == (22, "No config item, Namespace: nix")
        nameless = await cluster.ask(Code.PUT_KV_CONFIG, {"namespace": "N"})
        assert (nameless.code, nameless.remark) == (1, "namespace or key is null")

    with_name_server(tmp_path, test)


def test_a_disk_that_refuses_is_named_in_the_answer(tmp_path: Path) -> None:
    async def test(cluster: Cluster) -> None:
        fields = {"namespace": "N", "key": "k", "value": "v"}
        answer = await cluster.ask(Code.PUT_KV_CONFIG, fields)
        assert answer.code == ResponseCode.SYSTEM_ERROR
        assert (answer.remark or "").startswith("nothing was changed, the disk refused it")
        answer = await cluster.ask(Code.UPDATE_NAMESRV_CONFIG, body=b"enableTopicList=false\n")
        assert answer.code == ResponseCode.SYSTEM_ERROR
        assert "namesrv.properties cannot be replaced" in (answer.remark or "")
        assert (await cluster.ask(Code.GET_UNIT_TOPIC_LIST)).code == 0

    (tmp_path / "file").write_text("not a folder")
    with_name_server(tmp_path / "file", test)


def test_settings_are_shown_and_changed_and_kept(tmp_path: Path) -> None:
    (tmp_path / "namesrv.properties").write_text("# by hand\nserverWorkerThreads=3\n")

    async def test(cluster: Cluster) -> None:
        shown = (await cluster.ask(Code.GET_NAMESRV_CONFIG)).body or b""
        assert b"\nlistenPort=9876\n" in shown
        assert b"\norderMessageEnable=false\n" in shown
        body = b"orderMessageEnable=true\n"
        assert (await cluster.ask(Code.UPDATE_NAMESRV_CONFIG, body=body)).code == 0
        assert body in ((await cluster.ask(Code.GET_NAMESRV_CONFIG)).body or b"")
        assert (await cluster.ask(Code.UPDATE_NAMESRV_CONFIG)).code == 0

    with_name_server(tmp_path, test)
    kept = (tmp_path / "namesrv.properties").read_text()
    assert kept == "orderMessageEnable=true\nserverWorkerThreads=3\n"


@pytest.mark.parametrize(
    ("body", "code", "words"),
    [
        (b"kvConfigPath=/x", 16, "on the black list, change it in the file and restart"),
        (b"rocketmqHome=/x", 16, "rocketmqHome"),
        (b"enableTopicList=false", 16, "enableTopicList"),
        (b"orderMessageEnabel=true", 1, "no such setting: orderMessageEnabel"),
        (b"orderMessageEnable=maybe", 1, "orderMessageEnable is 'maybe', but must be true or"),
        (b"waitSecondsForService=-1", 1, "a whole number, at least 0"),
        (b"listenPort=1", 1, "read at start only"),
        (b"serverWorkerThreads=3", 1, "has no effect"),
        (b"orderMessageEnable=\\u12", 1, "four hexadecimal digits"),
    ],
)
def test_changes_that_cannot_be_are_refused_with_the_reason(
    tmp_path: Path, body: bytes, code: int, words: str
) -> None:
    async def test(cluster: Cluster) -> None:
        body_of_two = b"supportActingMaster=true\n" + body
        answer = await cluster.ask(Code.UPDATE_NAMESRV_CONFIG, body=body_of_two)
        assert answer.code == code
        assert words in (answer.remark or "")
        shown = (await cluster.ask(Code.GET_NAMESRV_CONFIG)).body or b""
        assert b"supportActingMaster=false" in shown

    with_name_server(tmp_path, test, replace(SETTINGS, config_black_list="enableTopicList"))
