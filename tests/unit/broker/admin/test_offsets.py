"""Offsets of groups by request: shown, compared, cloned."""

from pathlib import Path

from unit.broker.admin.desk import GROUP, TOPIC, Desk, at_desk

from downrange.protocol.bodies.json_body import decode_body
from downrange.protocol.bodies.statistics import CorrectionOffsets
from downrange.protocol.integers import INT64_MAX
from downrange.protocol.request_codes import RequestCode as Code
from downrange.protocol.response_codes import ResponseCode


async def two_groups(desk: Desk) -> None:
    await desk.create()
    desk.put(3)
    desk.put(3, queue_id=1)
    for queue_id in (0, 1):
        desk.tables.offsets.commit(GROUP, TOPIC, queue_id, 2)
    desk.tables.offsets.commit("slow", TOPIC, 0, 1)


def test_the_whole_table_is_written_as_its_file_but_without_blanks(tmp_path: Path) -> None:
    async def scenario(desk: Desk) -> None:
        desk.tables.offsets.commit(GROUP, TOPIC, 0, 2)
        answer = await desk.ask(Code.GET_ALL_CONSUMER_OFFSET)
        assert answer.body is not None
        version, rest = answer.body.split(b',"groupTopicMap"')
        assert version.startswith(b'{"dataVersion":{"counter":0,"stateVersion":0,"timestamp":')
        assert rest == b':{"G":["T"]},"offsetTable":{"T@G":{0:2}},"pullOffsetTable":{}}'

    at_desk(tmp_path, scenario)


def test_the_slowest_group_counts_and_groups_left_out_keep_their_offsets(tmp_path: Path) -> None:
    async def scenario(desk: Desk) -> None:
        await two_groups(desk)
        code = Code.QUERY_CORRECTION_OFFSET
        answer = await desk.ask(code, filterGroups="", compareGroup=GROUP, topic=TOPIC)
        assert answer.body == b'{"correctionOffsets":{0:1,1:2}}'
        answer = await desk.ask(code, filterGroups="slow", compareGroup=GROUP, topic=TOPIC)
        assert answer.body == b'{"correctionOffsets":{0:2,1:2}}'
        assert desk.tables.offsets.query("slow", TOPIC, 0) == 1

    at_desk(tmp_path, scenario)


def test_a_compared_group_that_is_slower_shows_as_the_largest_number(tmp_path: Path) -> None:
    async def scenario(desk: Desk) -> None:
        await two_groups(desk)
        code = Code.QUERY_CORRECTION_OFFSET
        answer = await desk.ask(code, filterGroups="slow", compareGroup="slow", topic=TOPIC)
        found = decode_body(CorrectionOffsets, answer.body).correction_offsets
        assert found == {0: INT64_MAX, 1: 2}
        desk.tables.offsets.commit("third", TOPIC, 9, 1)  # a queue in which nobody else is
        answer = await desk.ask(code, filterGroups="third", compareGroup="third", topic=TOPIC)
        assert decode_body(CorrectionOffsets, answer.body).correction_offsets == {0: 1, 1: 2}
        answer = await desk.ask(code, compareGroup="nobody", topic="nope")
        assert answer.body == b'{"correctionOffsets":{}}'

    at_desk(tmp_path, scenario)


def test_offsets_are_cloned_in_one_topic_or_in_all(tmp_path: Path) -> None:
    async def scenario(desk: Desk) -> None:
        await two_groups(desk)
        await desk.create("U")
        offsets = desk.tables.offsets
        offsets.commit(GROUP, "U", 0, 7)
        offsets.commit(GROUP, "deleted", 0, 7)
        code = Code.CLONE_GROUP_OFFSET
        await desk.ask(code, srcGroup=GROUP, destGroup="one", topic=TOPIC, offline=False)
        assert offsets.topics_of("one") == {TOPIC}
        assert offsets.of_queues("one", TOPIC) == {0: 2, 1: 2}
        await desk.ask(code, srcGroup=GROUP, destGroup="all", offline=False)
        assert offsets.topics_of("all") == {TOPIC, "U"}

    at_desk(tmp_path, scenario)


def test_a_topic_that_an_online_group_has_left_is_cloned_only_as_if_offline(tmp_path: Path) -> None:
    async def scenario(desk: Desk) -> None:
        await two_groups(desk)
        await desk.join("c@1", GROUP, ("U",))
        code = Code.CLONE_GROUP_OFFSET
        await desk.ask(code, srcGroup=GROUP, destGroup="one", topic=TOPIC, offline=False)
        assert desk.tables.offsets.topics_of("one") == set()
        await desk.ask(code, srcGroup=GROUP, destGroup="one", topic=TOPIC, offline=True)
        assert desk.tables.offsets.topics_of("one") == {TOPIC}

    at_desk(tmp_path, scenario)


def test_offsets_are_not_cloned_to_a_name_that_is_no_group(tmp_path: Path) -> None:
    async def scenario(desk: Desk) -> None:
        await two_groups(desk)
        for group in ("", "a@b", "x" * 300):
            answer = await desk.ask(Code.CLONE_GROUP_OFFSET, srcGroup=GROUP, destGroup=group)
            assert answer.code == ResponseCode.INVALID_PARAMETER, group

    at_desk(tmp_path, scenario)
