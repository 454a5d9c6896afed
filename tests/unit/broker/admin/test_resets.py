"""A group moved by an operator: to a time, to an offset, by the broker or through its clients."""

from pathlib import Path

from unit.broker.admin.desk import BROKER, GROUP, TOPIC, Desk, at_desk, turn

from downrange.model.topics import MessageQueue
from downrange.protocol.bodies.json_body import decode_body
from downrange.protocol.bodies.queues import ResetOffset, ResetOffsetForCpp
from downrange.protocol.command import Command
from downrange.protocol.languages import LanguageCode
from downrange.protocol.request_codes import RequestCode as Code
from downrange.protocol.response_codes import ResponseCode
from downrange.remoting.connection import Answer, Connection

RESET = Code.INVOKE_BROKER_TO_RESET_OFFSET


def by_queue(answer: Command) -> dict[int, int]:
    table = decode_body(ResetOffset, answer.body).offset_table
    assert all(queue.topic == TOPIC and queue.broker_name == BROKER for queue in table)
    return {queue.queue_id: offset for queue, offset in table.items()}


async def group_with_messages(desk: Desk) -> int:
    """Three messages in each of two queues; returns when the first one was stored."""
    await desk.create()
    first_ms = desk.clock.wall_ms() + 1000
    desk.put(3)
    desk.put(3, queue_id=1)
    desk.tables.groups.find(GROUP)
    for queue_id in (0, 1):
        desk.tables.offsets.commit(GROUP, TOPIC, queue_id, 2)
    return first_ms


def test_the_next_pull_takes_the_offset_of_the_time(tmp_path: Path) -> None:
    async def scenario(desk: Desk) -> None:
        first_ms = await group_with_messages(desk)
        answer = await desk.ask(
            RESET,
            group=GROUP,
            topic=TOPIC,
            queueId=-1,
            offset=-1,
            timestamp=first_ms + 1000,
            isForce=True,
        )
        assert by_queue(answer) == {0: 1, 1: 0}
        offsets = desk.tables.offsets
        offsets.commit(GROUP, TOPIC, 0, 3)
        assert offsets.query(GROUP, TOPIC, 0) == 1, "commits are ignored while a reset waits"
        assert offsets.take_reset(GROUP, TOPIC, 0) == 1
        assert offsets.take_reset(GROUP, TOPIC, 1) == 0
        assert offsets.take_reset(GROUP, TOPIC, 0) is None

    at_desk(tmp_path, scenario)


def test_a_time_before_all_times_means_the_end(tmp_path: Path) -> None:
    async def scenario(desk: Desk) -> None:
        await group_with_messages(desk)
        answer = await desk.ask(RESET, group=GROUP, topic=TOPIC, timestamp=-1, isForce=True)
        assert by_queue(answer) == {0: 3, 1: 3}

    at_desk(tmp_path, scenario)


def test_one_queue_is_moved_to_an_offset_within_its_bounds(tmp_path: Path) -> None:
    async def scenario(desk: Desk) -> None:
        await group_with_messages(desk)

        async def move(queue_id: int, offset: int) -> Command:
            return await desk.ask(
                RESET,
                group=GROUP,
                topic=TOPIC,
                queueId=queue_id,
                offset=offset,
                timestamp=0,
                isForce=True,
            )

        assert by_queue(await move(1, 1)) == {1: 1}
        assert desk.tables.offsets.take_reset(GROUP, TOPIC, 0) is None
        answer = await move(0, 99)
        assert answer.code == ResponseCode.SYSTEM_ERROR
        assert answer.remark == "Target offset 99 not in consume queue range [0-3]"
        assert (await move(0, -5)).code == ResponseCode.SYSTEM_ERROR
        assert (await move(9, 0)).code == ResponseCode.SYSTEM_ERROR

    at_desk(tmp_path, scenario)


def test_an_unknown_topic_or_group_is_not_moved(tmp_path: Path) -> None:
    async def scenario(desk: Desk) -> None:
        await group_with_messages(desk)
        answer = await desk.ask(RESET, group=GROUP, topic="nope", timestamp=0, isForce=True)
        assert (answer.code, answer.remark) == (17, "Topic nope does not exist")
        answer = await desk.ask(RESET, group="nope", topic=TOPIC, timestamp=0, isForce=True)
        assert (answer.code, answer.remark) == (26, "Group nope does not exist")

    at_desk(tmp_path, scenario)


def test_clients_are_told_when_the_broker_does_not_do_it_alone(tmp_path: Path) -> None:
    async def scenario(desk: Desk) -> None:
        first_ms = await group_with_messages(desk)
        told: list[Command] = []

        def listen(request: Command, _: Connection) -> Answer:
            told.append(request)
            return None

        await desk.join("c@1", serves={Code.RESET_CONSUMER_CLIENT_OFFSET: listen})
        for is_force, expected in ((False, {0: 2, 1: 1}), (True, {0: 3, 1: 1})):
            answer = await desk.ask(
                RESET, group=GROUP, topic=TOPIC, timestamp=first_ms + 4000, isForce=is_force
            )
            assert by_queue(answer) == expected
            await turn()
            request = told.pop()
            assert request.is_one_way
            assert by_queue(request) == expected
            assert request.ext_fields is not None
            assert request.ext_fields["group"] == GROUP
        assert desk.tables.offsets.take_reset(GROUP, TOPIC, 0) is None

    at_desk(tmp_path, scenario, server_side_reset=False)


def test_a_client_in_cpp_is_told_in_a_list(tmp_path: Path) -> None:
    async def scenario(desk: Desk) -> None:
        await group_with_messages(desk)
        told: list[Command] = []

        def listen(request: Command, _: Connection) -> Answer:
            told.append(request)
            return None

        await desk.join("c@1", serves={Code.RESET_CONSUMER_CLIENT_OFFSET: listen})
        client = desk.tables.consumers.find_client(GROUP, "c@1")
        assert client is not None
        client.language = LanguageCode.CPP
        await desk.ask(RESET, group=GROUP, topic=TOPIC, timestamp=0, isForce=True)
        await turn()
        table = decode_body(ResetOffsetForCpp, told[0].body).offset_table
        assert [(one.queue_id, one.offset) for one in table] == [(0, 0), (1, 0)]
        assert MessageQueue(table[0].topic, table[0].broker_name, 0) == MessageQueue(
            TOPIC, BROKER, 0
        )

    at_desk(tmp_path, scenario, server_side_reset=False)


def test_clients_that_are_away_too_old_or_without_offsets_cannot_be_told(tmp_path: Path) -> None:
    async def scenario(desk: Desk) -> None:
        await group_with_messages(desk)
        answer = await desk.ask(RESET, group=GROUP, topic=TOPIC, timestamp=0, isForce=True)
        assert answer.code == ResponseCode.CONSUMER_NOT_ONLINE
        await desk.join("c@1")
        client = desk.tables.consumers.find_client(GROUP, "c@1")
        assert client is not None
        client.version = 0
        answer = await desk.ask(RESET, group=GROUP, topic=TOPIC, timestamp=0, isForce=True)
        assert answer.code == ResponseCode.SYSTEM_ERROR
        assert "V3_0_0_SNAPSHOT" in (answer.remark or "")
        answer = await desk.ask(RESET, group="new", topic=TOPIC, timestamp=0, isForce=True)
        assert answer.code == ResponseCode.SYSTEM_ERROR

    at_desk(tmp_path, scenario, server_side_reset=False)
