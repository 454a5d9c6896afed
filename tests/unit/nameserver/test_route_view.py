"""Acting masters and zones in the route of a topic."""

import pytest
from msgspec import structs

from downrange.nameserver.route_view import with_acting_masters, within_zone
from downrange.protocol.bodies.route import BrokerData, QueueData, TopicRoute

SLAVES = BrokerData(
    cluster="c", broker_name="b", broker_addrs={2: "s2", 3: "s3"}, enable_acting_master=True
)
READ_ONLY = QueueData(broker_name="b", perm=4)


def route(broker: BrokerData, queue: QueueData) -> TopicRoute:
    return TopicRoute(queue_datas=(queue,), broker_datas=(broker,))


def test_the_first_slave_acts_as_master() -> None:
    seen = with_acting_masters("T", route(SLAVES, READ_ONLY))
    assert [b.broker_addrs for b in seen.broker_datas] == [{0: "s2", 3: "s3"}]


@pytest.mark.parametrize(
    ("topic", "broker", "queue"),
    [
        ("T", SLAVES, structs.replace(READ_ONLY, perm=6)),
        ("T", structs.replace(SLAVES, enable_acting_master=False), READ_ONLY),
        ("T", structs.replace(SLAVES, broker_addrs={}), READ_ONLY),
        ("T", structs.replace(SLAVES, broker_addrs={0: "m", 2: "s2"}), READ_ONLY),
        ("T", SLAVES, structs.replace(READ_ONLY, broker_name="other")),
        ("rmq_sys_SYNC_BROKER_MEMBER_b", SLAVES, READ_ONLY),
    ],
)
def test_nobody_acts_where_there_is_no_need_or_no_leave(
    topic: str, broker: BrokerData, queue: QueueData
) -> None:
    assert with_acting_masters(topic, route(broker, queue)) == route(broker, queue)


def test_a_zone_keeps_its_own_brokers_and_those_without_master() -> None:
    near = BrokerData(cluster="c", broker_name="near", broker_addrs={0: "n"}, zone_name="Z1")
    far = BrokerData(cluster="c", broker_name="far", broker_addrs={0: "f"}, zone_name="z2")
    none = BrokerData(cluster="c", broker_name="none", broker_addrs={0: "x"})
    whole = TopicRoute(
        queue_datas=tuple(QueueData(broker_name=n) for n in ("near", "far", "none", "b")),
        broker_datas=(near, far, none, SLAVES),
        filter_server_table={"n": ("1",), "f": ("2",)},
    )
    seen = within_zone(whole, "z1")
    assert seen.broker_datas == (near, SLAVES)
    assert [q.broker_name for q in seen.queue_datas] == ["near", "b"]
    assert seen.filter_server_table == {"n": ("1",)}
