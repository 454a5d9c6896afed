"""Every member of a group, Java's too, comes to the same shares."""

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from downrange.client.allocation import (
    STRATEGIES,
    AllocationStrategy,
    Averagely,
    BrokerAware,
    ByCircle,
    ByConfig,
    ByMachineRoom,
    ConsistentHash,
    MachineRoomNearby,
    share_out,
    strategy_named,
)
from downrange.model.topics import MessageQueue


def room_of_broker(queue: MessageQueue) -> str:
    return queue.broker_name.partition("@")[0]


def room_of_client(client_id: str) -> str:
    return client_id.partition("#")[0]


def nearby(inner: AllocationStrategy) -> MachineRoomNearby:
    return MachineRoomNearby(inner, room_of_broker, room_of_client)


# Shares that the classes of rocketmq-client 5.5.0 gave, for 56 combinations each.
JAVA = json.loads((Path(__file__).parent / "allocation_java_5_5.json").read_text())
BY_JAVA_NAME: dict[str, AllocationStrategy] = {
    "AVG": Averagely(),
    "AVG_BY_CIRCLE": ByCircle(),
    "MACHINE_ROOM": ByMachineRoom(frozenset({"room0", "room2"})),
    "CONSISTENT_HASH": ConsistentHash(),
    "MACHINE_ROOM_NEARBY-AVG": nearby(Averagely()),
    "MACHINE_ROOM_NEARBY-CONSISTENT_HASH3": nearby(ConsistentHash(3)),
}


def queues_of(brokers: int, queues: int) -> list[MessageQueue]:
    return sorted(
        MessageQueue("orders", f"room{broker}@broker-{broker}", queue)
        for broker in range(brokers)
        for queue in range(queues)
    )


def members(count: int) -> list[str]:
    return sorted(f"room{one % 2}#10.0.0.{one + 7}@{1000 + 37 * one}" for one in range(count))


@pytest.mark.parametrize("name", BY_JAVA_NAME)
def test_shares_are_those_of_java(name: str) -> None:
    strategy = BY_JAVA_NAME[name]
    cases = [case for case in JAVA if case["strategy"] == name]
    assert len(cases) == 56
    for case in cases:
        queues, clients = queues_of(case["brokers"], case["queues"]), members(case["members"])
        shares = [
            [queues.index(queue) for queue in strategy.allocate(client, queues, clients)]
            for client in clients
        ]
        assert shares == case["shares"], case
        assert strategy.name in name


@given(
    st.sampled_from(sorted(STRATEGIES)),
    st.integers(1, 5),
    st.integers(1, 12),
    st.integers(1, 25),
    st.randoms(use_true_random=False),
)
def test_every_queue_has_one_owner_in_whatever_order_it_comes(
    name: str, brokers: int, queues: int, count: int, chance: object
) -> None:
    strategy, all_queues, clients = STRATEGIES[name], queues_of(brokers, queues), members(count)
    mixed = list(all_queues)
    chance.shuffle(mixed)  # type: ignore[attr-defined]
    owned = [
        queue for client in clients for queue in share_out(strategy, client, mixed, clients[::-1])
    ]
    assert sorted(owned) == all_queues


@pytest.mark.parametrize("strategy", BY_JAVA_NAME.values(), ids=lambda strategy: strategy.name)
def test_a_client_that_is_not_in_the_group_gets_nothing(strategy: AllocationStrategy) -> None:
    assert strategy.allocate("room0#stranger", queues_of(2, 4), members(3)) == []


def test_config_gives_what_was_written_down() -> None:
    mine = (MessageQueue("orders", "b", 3),)
    assert ByConfig(mine).allocate("anybody", queues_of(1, 4), []) == list(mine)


@given(st.integers(2, 5), st.integers(1, 9), st.integers(1, 9))
def test_a_broker_that_goes_moves_no_queue_of_the_others(
    brokers: int, queues: int, count: int
) -> None:
    strategy, clients = BrokerAware(), members(count)
    before = queues_of(brokers, queues)
    after = [queue for queue in before if queue.broker_name != before[0].broker_name]
    for client in clients:
        held = strategy.allocate(client, before, clients)
        kept = strategy.allocate(client, after, clients)
        assert kept == [queue for queue in held if queue in after]
    for broker in {queue.broker_name for queue in before}:
        of_broker = [queue for queue in before if queue.broker_name == broker]
        sizes = [len(strategy.allocate(client, of_broker, clients)) for client in clients]
        assert max(sizes) - min(sizes) <= 1


def test_unknown_names_and_rooms_are_refused_with_the_remedy() -> None:
    with pytest.raises(ValueError, match="AVG_BY_CIRCLE"):
        strategy_named("AVERAGE")
    assert strategy_named("AVG") == Averagely()
    with pytest.raises(ValueError, match="resolver must name one"):
        MachineRoomNearby(Averagely(), lambda _: "", room_of_client).allocate(
            members(1)[0], queues_of(1, 1), members(1)
        )
    with pytest.raises(ValueError, match="negative"):
        ConsistentHash(-1)
    assert ConsistentHash(0).allocate("a", queues_of(1, 1), ["a"]) == []
