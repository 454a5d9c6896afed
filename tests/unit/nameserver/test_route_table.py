"""Which brokers live, who is master, and what a topic's route shows; no network, no clock."""

from dataclasses import replace

import msgspec
from unit.nameserver.building import MASTER, SLAVE, VERSION, registration

from downrange.model.topics import DataVersion, TopicConfig
from downrange.nameserver.broker_names import MinBrokerIdNotice, Registered
from downrange.nameserver.live_brokers import BrokerAddress
from downrange.nameserver.route_table import RouteTable
from downrange.protocol.bodies.route import QueueData, QueueMapping

ACTING_MASTER = replace(MASTER, acting_master=True)
ACTING_SLAVE = replace(SLAVE, acting_master=True)
OTHER = replace(MASTER, name="b2", address="10.0.0.9:10911", ha_address="10.0.0.9:10912")


class FakePeer:
    def close(self) -> None:
        raise AssertionError("the table closes nothing itself")


PEER = FakePeer()


def permissions(table: RouteTable, topic: str) -> dict[str, int]:
    route = table.route(topic)
    return {} if route is None else {q.broker_name: q.perm for q in route.queue_datas}


def test_a_registered_broker_has_a_route_for_each_of_its_topics() -> None:
    table = RouteTable()
    topic = TopicConfig(topic_name="T", read_queue_nums=4, write_queue_nums=8, topic_sys_flag=1)
    assert table.register(MASTER, registration(topic, "U"), PEER, 0) == Registered()
    route = table.route("T")
    assert route is not None
    assert route.queue_datas == (
        QueueData(broker_name="b", read_queue_nums=4, write_queue_nums=8, perm=6, topic_sys_flag=1),
    )
    assert [b.broker_addrs for b in route.broker_datas] == [{0: MASTER.address}]
    assert table.route("nix") is None
    assert table.topics.names() == ("T", "U")


def test_a_slave_learns_its_master_only_while_the_master_lives() -> None:
    table = RouteTable()
    assert table.register(SLAVE, registration(), PEER, 0) == Registered()
    table.register(MASTER, registration(), PEER, 0)
    answer = table.register(SLAVE, registration(), PEER, 0)
    assert answer == Registered(
        master_address=MASTER.address, ha_address=MASTER.ha_address, notice=None
    )
    table.unregister("c", "b", 0, MASTER.address)
    assert table.register(SLAVE, registration(), PEER, 0) == Registered()


def test_a_slave_of_an_old_release_brings_no_topics() -> None:
    table = RouteTable()
    table.register(SLAVE, registration(), PEER, 0)
    assert table.route("T") is None
    assert table.members("b") == {1: SLAVE.address}


def test_a_single_topic_of_an_unknown_broker_is_refused_and_leaves_no_trace() -> None:
    table = RouteTable()
    assert table.register(MASTER, registration("T"), PEER, 0) is None
    assert table.cluster_info().broker_addr_table == {}
    assert table.cluster_info().cluster_addr_table == {}
    table.register(MASTER, registration("A", "B"), PEER, 0)
    assert table.register(MASTER, registration("T"), PEER, 0) is not None
    assert table.topics.names() == ("A", "B", "T")


def test_an_unchanged_version_does_not_undo_wiped_permissions_but_a_new_one_does() -> None:
    table = RouteTable()
    table.register(MASTER, registration(), PEER, 0)
    assert table.topics.wipe_write_permission("b") == 2
    assert table.topics.wipe_write_permission("nix") == 0
    table.register(MASTER, registration("T", "U", "V"), PEER, 0)
    assert (permissions(table, "T"), permissions(table, "V")) == ({"b": 4}, {"b": 6})
    table.register(MASTER, registration(version=VERSION.next(8)), PEER, 0)
    assert permissions(table, "T") == {"b": 6}


def test_adding_write_permission_gives_read_and_write_whatever_was_there() -> None:
    table = RouteTable()
    table.register(MASTER, registration(TopicConfig(topic_name="T", perm=1), "U"), PEER, 0)
    assert table.topics.add_write_permission("b") == 2
    assert permissions(table, "T") == {"b": 6}


def test_a_slave_that_becomes_master_keeps_one_entry() -> None:
    table = RouteTable()
    table.register(SLAVE, registration(), PEER, 0)
    table.register(replace(SLAVE, broker_id=0), registration(), PEER, 0)
    assert table.members("b") == {0: SLAVE.address}
    assert permissions(table, "T") == {"b": 6}


def test_an_older_state_does_not_take_an_id_from_a_newer_one() -> None:
    table = RouteTable()
    newer = DataVersion(state_version=2)
    table.register(MASTER, registration(version=newer), PEER, 0)
    thief = replace(MASTER, address="10.0.0.8:10911")
    older = registration(version=DataVersion(state_version=1))
    assert table.register(thief, older, PEER, 0) == Registered()
    assert table.members("b") == {0: MASTER.address}
    assert table.live.get(BrokerAddress("c", thief.address)) is None
    assert table.register(thief, registration(version=newer), PEER, 0) == Registered()
    assert table.members("b") == {0: thief.address}


def test_a_broker_whose_id_went_to_another_address_is_forgotten_when_it_expires() -> None:
    table = RouteTable()
    table.register(MASTER, registration(), PEER, 0)
    table.register(replace(MASTER, address="10.0.0.8:10911"), registration(), PEER, 200_000)
    table.expire(200_000)
    assert list(table.live) == [BrokerAddress("c", "10.0.0.8:10911")]
    assert table.members("b") == {0: "10.0.0.8:10911"}


def test_the_last_broker_of_a_name_takes_name_cluster_and_topics_along() -> None:
    table = RouteTable()
    table.register(MASTER, registration(), PEER, 0)
    table.register(SLAVE, registration(), PEER, 0)
    table.register(OTHER, registration("T", "X"), PEER, 0)
    table.unregister("c", "b", 0, MASTER.address)
    assert permissions(table, "T") == {"b": 6, "b2": 6}  # the slave still serves reads
    table.unregister("c", "b", 1, SLAVE.address)
    assert permissions(table, "T") == {"b2": 6}
    assert table.route("U") is None
    table.unregister("c", "b2", 0, OTHER.address)
    assert table.cluster_info().cluster_addr_table == {}
    assert table.topics.names() == ()
    assert table.unregister("c", "b2", 0, OTHER.address) is None


def test_a_broker_expires_after_its_own_timeout_or_two_minutes() -> None:
    table = RouteTable()
    table.register(MASTER, registration(), PEER, 0)
    table.register(replace(OTHER, timeout_ms=1_000), registration(), PEER, 0)
    assert table.expire(1_000) == ([], [])
    assert table.expire(1_001) == ([PEER], [])
    table.live.heard(BrokerAddress("c", MASTER.address), 500)
    assert table.expire(120_500) == ([], [])
    assert table.expire(120_501) == ([PEER], [])
    assert table.route("T") is None


def test_all_brokers_of_a_closed_connection_go_at_once_and_no_others() -> None:
    table = RouteTable()
    container = FakePeer()
    table.register(MASTER, registration(), container, 0)
    table.register(OTHER, registration(), container, 0)
    table.register(replace(MASTER, name="b3", address="10.0.0.7:1"), registration(), PEER, 0)
    table.peer_closed(container)
    assert list(table.cluster_info().broker_addr_table) == ["b3"]
    table.peer_closed(container)
    assert list(table.cluster_info().broker_addr_table) == ["b3"]


def test_a_broker_that_registered_again_survives_the_end_of_its_first_connection() -> None:
    table = RouteTable()
    first = FakePeer()
    table.register(MASTER, registration(), first, 0)
    table.register(MASTER, registration(), PEER, 0)
    table.peer_closed(first)
    assert table.members("b") == {0: MASTER.address}


def test_without_master_the_first_slave_that_may_act_makes_its_topics_read_only() -> None:
    table = RouteTable()
    table.register(ACTING_MASTER, registration(), PEER, 0)
    table.register(ACTING_SLAVE, registration(), PEER, 0)
    notice = table.unregister("c", "b", 0, MASTER.address)
    assert permissions(table, "T") == {"b": 4}
    assert notice == MinBrokerIdNotice(
        min_broker_id=1,
        min_address=SLAVE.address,
        offline_address=MASTER.address,
        ha_address=None,
        recipients=(SLAVE.address,),
    )
    table.register(ACTING_SLAVE, registration(version=VERSION.next(9)), PEER, 0)
    assert permissions(table, "T") == {"b": 4}
    back = table.register(ACTING_MASTER, registration(), PEER, 0)
    assert permissions(table, "T") == {"b": 6}
    assert isinstance(back, Registered)
    assert back.notice == MinBrokerIdNotice(
        min_broker_id=0,
        min_address=MASTER.address,
        offline_address=None,
        ha_address=MASTER.ha_address,
        recipients=(SLAVE.address,),
    )


def test_brokers_that_cannot_act_get_no_notice_of_a_lost_master() -> None:
    table = RouteTable()
    table.register(MASTER, registration(), PEER, 0)
    table.register(SLAVE, registration(), PEER, 0)
    assert table.unregister("c", "b", 0, MASTER.address) is None
    assert permissions(table, "T") == {"b": 6}


def test_topics_that_a_registration_no_longer_names_go_only_if_asked_for() -> None:
    table = RouteTable()
    table.register(MASTER, registration(), PEER, 0)
    table.register(OTHER, registration(), PEER, 0)
    table.register(MASTER, registration("T", "V"), PEER, 0)
    assert permissions(table, "U") == {"b": 6, "b2": 6}
    table.register(MASTER, registration("T", "V"), PEER, 0, delete_missing_topics=True)
    assert permissions(table, "U") == {"b2": 6}


def test_a_topic_is_deleted_everywhere_or_in_one_cluster() -> None:
    table = RouteTable()
    elsewhere = replace(OTHER, cluster="c2")
    table.register(MASTER, registration(), PEER, 0)
    table.register(elsewhere, registration(), PEER, 0)
    table.delete_topic("T", "nix")
    assert permissions(table, "T") == {"b": 6, "b2": 6}
    table.delete_topic("T", "c")
    assert permissions(table, "T") == {"b2": 6}
    assert table.topics_of_cluster("c") == ("U",)
    assert table.topics_of_cluster("c2") == ("T", "U")
    table.delete_topic("U")
    assert table.route("U") is None


def test_a_topic_can_be_registered_for_known_brokers_only() -> None:
    table = RouteTable()
    table.register(MASTER, registration(), PEER, 0)
    queue = QueueData(broker_name="b", read_queue_nums=1, write_queue_nums=1, perm=6)
    assert table.register_topic("new", [queue])
    assert permissions(table, "new") == {"b": 6}
    unknown = msgspec.structs.replace(queue, broker_name="nix")
    assert not table.register_topic("newer", [queue, unknown])
    assert table.route("newer") is None
    assert table.register_topic("empty", [])
    assert "empty" not in table.topics.names()


def test_filter_servers_are_in_the_route_until_the_broker_drops_them() -> None:
    table = RouteTable()
    table.register(MASTER, registration(filters=("f:1",)), PEER, 0)
    route = table.route("T")
    assert route is not None
    assert route.filter_server_table == {MASTER.address: ("f:1",)}
    table.register(MASTER, registration(), PEER, 0)
    route = table.route("T")
    assert route is not None
    assert route.filter_server_table == {}


def test_queue_mappings_of_static_topics_are_in_the_route_by_broker() -> None:
    table = RouteTable()
    mapping = QueueMapping(topic="T", bname="b", total_queues=4, curr_id_map={0: 0})
    table.register(MASTER, registration(mappings={"T": mapping}), PEER, 0)
    route = table.route("T")
    assert route is not None
    assert route.topic_queue_mapping_by_broker == {"b": mapping}
    table.delete_topic("T")
    table.register_topic("T", [QueueData(broker_name="b")])
    route = table.route("T")
    assert route is not None
    assert route.topic_queue_mapping_by_broker is None
