"""Sharing out queues, and the table of who pulls and who pops."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from downrange.broker.assignment import (
    STRATEGIES,
    RequestModeTable,
    allocate_averagely,
    allocate_by_circle,
    allocate_for_pop,
)
from downrange.model.topics import MessageQueue
from downrange.runtime.disk import Disk
from downrange.store.feature_tables import GroupRequestMode, RequestMode, request_modes_file

CLIENTS = ["a", "b", "c"]


def queues(count: int) -> list[MessageQueue]:
    return [MessageQueue("t", "broker-a", queue_id) for queue_id in range(count)]


def numbers(allocated: list[MessageQueue]) -> list[int]:
    return [queue.queue_id for queue in allocated]


@pytest.mark.parametrize(
    ("count", "average", "circle"),
    [
        (8, [[0, 1, 2], [3, 4, 5], [6, 7]], [[0, 3, 6], [1, 4, 7], [2, 5]]),
        (3, [[0], [1], [2]], [[0], [1], [2]]),
        (2, [[0], [1], []], [[0], [1], []]),
        (0, [[], [], []], [[], [], []]),
    ],
)
def test_queues_are_shared_out_as_java_does(
    count: int, average: list[list[int]], circle: list[list[int]]
) -> None:
    all_queues = queues(count)
    assert [numbers(allocate_averagely(one, all_queues, CLIENTS)) for one in CLIENTS] == average
    assert [numbers(allocate_by_circle(one, all_queues, CLIENTS)) for one in CLIENTS] == circle
    assert allocate_averagely("stranger", all_queues, CLIENTS) == []
    assert allocate_by_circle("stranger", all_queues, CLIENTS) == []


@given(st.integers(0, 40), st.integers(1, 12), st.sampled_from(sorted(STRATEGIES)))
def test_every_queue_has_exactly_one_client_and_shares_are_even(
    queue_count: int, client_count: int, name: str
) -> None:
    clients = [f"{number:02}" for number in range(client_count)]
    shares = [STRATEGIES[name](one, queues(queue_count), clients) for one in clients]
    assert sorted(queue for share in shares for queue in share) == queues(queue_count)
    assert max(map(len, shares)) - min(map(len, shares)) <= 1


@pytest.mark.parametrize("share", [-1, 0, 2, 99])
def test_a_pop_client_without_bounds_gets_every_broker_whole(share: int) -> None:
    both = [*queues(4), MessageQueue("t", "broker-b", 0)]
    allocated = allocate_for_pop(allocate_averagely, "a", both, CLIENTS, share)
    assert allocated == [MessageQueue("t", "broker-a", -1), MessageQueue("t", "broker-b", -1)]


def test_a_pop_client_shares_the_queues_of_the_clients_after_it() -> None:
    clients = ["a", "b", "c", "d"]
    allocated = [
        numbers(allocate_for_pop(allocate_averagely, one, queues(8), clients, 1)) for one in clients
    ]
    assert allocated == [[0, 1, 2, 3], [2, 3, 4, 5], [4, 5, 6, 7], [6, 7, 0, 1]]
    assert allocate_for_pop(allocate_averagely, "stranger", queues(8), clients, 1) == []


def test_more_pop_clients_than_queues_get_one_queue_each() -> None:
    clients = ["a", "b", "c", "d"]
    allocated = [
        numbers(allocate_for_pop(allocate_averagely, one, queues(2), clients, 1)) for one in clients
    ]
    assert allocated == [[0], [1], [0], [1]]
    assert allocate_for_pop(allocate_averagely, "a", [], clients, 1) == []


def test_modes_have_defaults_and_survive_their_file(tmp_path: Path, disk: Disk) -> None:
    file = request_modes_file(disk, tmp_path)
    table = RequestModeTable(file)
    assert table.mode_of("t", "g").mode is RequestMode.PULL
    popping = GroupRequestMode(
        topic="t", consumer_group="g", mode=RequestMode.POP, pop_share_queue_num=2
    )
    table.set(popping)
    assert table.is_dirty
    table.save()
    again = RequestModeTable(file, default_mode=RequestMode.POP)
    again.load()
    assert again.mode_of("t", "g") == popping
    assert again.mode_of("t", "h").pop_share_queue_num == -1
    assert again.mode_of("t", "h").mode is RequestMode.POP
    assert again.mode_of("%RETRY%h", "h", must_pull=True).mode is RequestMode.PULL


def test_modes_of_5_5_0_come_out_byte_for_byte(
    tmp_path: Path, disk: Disk, golden_config: Path
) -> None:
    text = (golden_config / "messageRequestMode.json").read_bytes()
    (tmp_path / "messageRequestMode.json").write_bytes(text)
    table = RequestModeTable(request_modes_file(disk, tmp_path))
    table.load()
    table.save()
    assert (tmp_path / "messageRequestMode.json").read_bytes() == text
