"""Queues shared out by the broker; the answers are those of a real 5.5.0."""

import json
from collections.abc import Callable, Coroutine, Sequence
from pathlib import Path

import pytest

from downrange.broker.assignment import RequestModeTable
from downrange.broker.consumer_table import ConsumerTable
from downrange.broker.group_table import GroupTable
from downrange.broker.handlers.assignment import AssignmentHandler
from downrange.broker.topic_table import TopicTable
from downrange.model.topics import MessageQueue
from downrange.protocol.bodies.assignment import AssignmentResponse
from downrange.protocol.bodies.heartbeat import ConsumerGroup
from downrange.protocol.bodies.json_body import decode_body
from downrange.protocol.command import Command, request
from downrange.remoting.connection import Connection
from downrange.remoting.errors import Refused
from downrange.runtime.disk import Disk
from downrange.store.feature_tables import request_modes_file
from downrange.testing.virtual_time import run

QUEUES = [MessageQueue("t", "broker-a", queue_id) for queue_id in range(4)]
ASKED = {
    "topic": "t",
    "consumerGroup": "g",
    "clientId": "a",
    "strategyName": "AVG",
    "messageModel": "CLUSTERING",
}


async def readable_queues(topic: str) -> Sequence[MessageQueue] | None:
    return list(reversed(QUEUES)) if topic == "t" else None


class Desk:
    """The handler with two clients, a and b, in group g."""

    def __init__(
        self,
        topics: TopicTable,
        groups: GroupTable,
        modes: RequestModeTable,
        consumers: ConsumerTable,
        connect: Callable[[], Connection],
    ) -> None:
        topics.create_for_send("t", "TBW102", 4, 0)

        async def durable() -> None:
            modes.save()

        self.parts = (topics, groups, consumers, modes, readable_queues, durable)
        self.handler = AssignmentHandler(*self.parts, broker_name="broker-a")
        self.connection = connect()
        for name in ("b", "a"):
            consumers.register(connect(), name, ConsumerGroup(group_name="g"))

    def call(self, code: int, values: dict[str, object] | None = None) -> Command:
        body = json.dumps(values).encode() if values is not None else None
        handler = self.handler.routes()[code]
        answer = handler(request(code, opaque=1, body=body), self.connection)
        if isinstance(answer, Coroutine):
            answer = run(answer)
        assert isinstance(answer, Command)
        return answer

    def assigned(self, **changes: object) -> list[tuple[int, str]] | None:
        body = self.call(400, {**ASKED, **changes}).body
        if body == b"{}":
            return None
        found = decode_body(AssignmentResponse, body).message_queue_assignments
        return [(one.message_queue.queue_id, one.mode) for one in found if one.message_queue]


@pytest.fixture
def modes(tmp_path: Path, disk: Disk) -> RequestModeTable:
    return RequestModeTable(request_modes_file(disk, tmp_path))


@pytest.fixture
def desk(
    topics: TopicTable,
    groups: GroupTable,
    modes: RequestModeTable,
    consumers: ConsumerTable,
    connect: Callable[[], Connection],
) -> Desk:
    return Desk(topics, groups, modes, consumers, connect)


def test_each_client_gets_its_share(desk: Desk) -> None:
    assert desk.assigned() == [(0, "PULL"), (1, "PULL")]
    assert desk.assigned(clientId="b") == [(2, "PULL"), (3, "PULL")]
    assert desk.assigned(strategyName="AVG_BY_CIRCLE") == [(0, "PULL"), (2, "PULL")]
    assert desk.assigned(clientId="stranger") == []


def test_a_group_that_broadcasts_gets_everything(desk: Desk) -> None:
    assert len(desk.assigned(messageModel="BROADCASTING") or ()) == 4


def test_without_sharing_out_the_client_gets_everything_and_does_it_itself(desk: Desk) -> None:
    desk.handler = AssignmentHandler(*desk.parts, broker_name="broker-a", shares_out=False)
    assert len(desk.assigned() or ()) == 4


@pytest.mark.parametrize(
    "changes",
    [{"topic": "nowhere"}, {"strategyName": "CONFIG"}, {"consumerGroup": "nobody"}],
)
def test_who_cannot_be_told_keeps_what_it_has(desk: Desk, changes: dict[str, object]) -> None:
    assert desk.assigned(**changes) is None


def test_a_model_that_is_none_is_refused(desk: Desk) -> None:
    with pytest.raises(Refused) as refusal:
        desk.assigned(messageModel="ODD")
    assert refusal.value.code == 29


def test_a_light_queue_is_on_this_broker(desk: Desk) -> None:
    assert desk.assigned(topic="%LMQ%x") == [(0, "PULL")]


def test_a_group_is_switched_to_pop_and_that_is_durable(
    desk: Desk, tmp_path: Path, disk: Disk
) -> None:
    change: dict[str, object] = {
        "topic": "t",
        "consumerGroup": "g",
        "mode": "POP",
        "popShareQueueNum": 0,
    }
    assert desk.call(401, change).code == 0
    assert desk.assigned() == [(-1, "POP")]
    saved = RequestModeTable(request_modes_file(disk, tmp_path))
    saved.load()
    assert saved.mode_of("t", "g").mode == "POP"
    assert desk.call(402).body == (
        b'{"messageRequestModeMap":{"t":{"g":{"consumerGroup":"g","mode":"POP",'
        b'"popShareQueueNum":0,"topic":"t"}}}}'
    )


@pytest.mark.parametrize(
    ("changes", "code"),
    [({"topic": "%RETRY%g"}, 16), ({"topic": "nowhere"}, 17), ({"mode": "PUSH"}, 29)],
)
def test_a_mode_that_cannot_be_is_refused(
    desk: Desk, changes: dict[str, object], code: int
) -> None:
    with pytest.raises(Refused) as refusal:
        desk.call(401, {"topic": "t", "consumerGroup": "g", "mode": "POP", **changes})
    assert refusal.value.code == code


def test_a_mode_of_a_group_that_may_not_exist_is_refused(
    topics: TopicTable,
    closed_groups: GroupTable,
    modes: RequestModeTable,
    consumers: ConsumerTable,
    connect: Callable[[], Connection],
) -> None:
    desk = Desk(topics, closed_groups, modes, consumers, connect)
    with pytest.raises(Refused) as refusal:
        desk.call(401, {"topic": "t", "consumerGroup": "new", "mode": "POP"})
    assert refusal.value.code == 26
    assert desk.call(402).body == b'{"messageRequestModeMap":{}}'
