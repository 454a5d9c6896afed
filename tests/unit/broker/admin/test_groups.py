"""Consumer groups by request."""

from pathlib import Path

from unit.broker.admin.desk import GROUP, TOPIC, Desk, at_desk

from downrange.broker.group_table import GroupSettings, GroupTable
from downrange.broker.handlers.admin.groups import READ_INDEX, GroupsHandler
from downrange.model.topics import SubscriptionGroupConfig
from downrange.protocol.bodies.groups import GroupConfigList
from downrange.protocol.bodies.groups import GroupTable as GroupTableBody
from downrange.protocol.bodies.json_body import decode_body, encode_body
from downrange.protocol.request_codes import RequestCode as Code
from downrange.protocol.response_codes import ResponseCode
from downrange.store.json_tables import groups_file


def test_a_created_group_is_durable_before_the_answer(tmp_path: Path) -> None:
    async def scenario(desk: Desk) -> None:
        body = encode_body(SubscriptionGroupConfig(group_name=GROUP, retry_max_times=3))
        assert (await desk.ask(Code.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, body)).code == 0
        saved = groups_file(desk.disk, desk.store.settings.config_path).load()
        assert saved is not None
        assert saved.groups[GROUP].retry_max_times == 3

    at_desk(tmp_path, scenario)


def test_a_group_without_a_body_or_with_a_bad_name_is_refused(tmp_path: Path) -> None:
    async def scenario(desk: Desk) -> None:
        answer = await desk.ask(Code.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP)
        assert answer.code == ResponseCode.SYSTEM_ERROR
        body = b'{"groupName":"bad name"}'
        answer = await desk.ask(Code.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, body)
        assert answer.code == ResponseCode.INVALID_PARAMETER

    at_desk(tmp_path, scenario)


def test_a_list_of_groups_is_created_or_not_as_a_whole(tmp_path: Path) -> None:
    async def scenario(desk: Desk) -> None:
        good = SubscriptionGroupConfig(group_name="A")
        for bad in (
            SubscriptionGroupConfig(group_name="bad name"),
            SubscriptionGroupConfig(group_name="B", attributes={"+no.such": "1"}),
        ):
            body = encode_body(GroupConfigList(group_config_list=(good, bad)))
            answer = await desk.ask(Code.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP_LIST, body)
            assert answer.code != 0
            assert "A" not in desk.tables.groups
        body = b'{"groupConfigList":[{"groupName":"A"},{"groupName":"B"}]}'
        answer = await desk.ask(Code.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP_LIST, body)
        assert answer.code == 0
        assert {"A", "B"} <= set(desk.tables.groups.names())
        answer = await desk.ask(Code.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP_LIST, b"{}")
        assert answer.code == ResponseCode.SYSTEM_ERROR

    at_desk(tmp_path, scenario)


def test_all_groups_come_with_what_they_may_not_read_also_in_pages(tmp_path: Path) -> None:
    async def scenario(desk: Desk) -> None:
        groups = desk.tables.groups
        groups.set_forbidden("CID_ONSAPI_OWNER", TOPIC, READ_INDEX, is_forbidden=True)
        groups.set_forbidden("TOOLS_CONSUMER", TOPIC, READ_INDEX, is_forbidden=True)
        answer = await desk.ask(Code.GET_ALL_SUBSCRIPTIONGROUP_CONFIG)
        table = decode_body(GroupTableBody, answer.body)
        assert list(table.subscription_group_table) == groups.names()
        assert table.forbidden_table.keys() == {"CID_ONSAPI_OWNER", "TOOLS_CONSUMER"}
        answer = await desk.ask(
            Code.GET_ALL_SUBSCRIPTIONGROUP_CONFIG, groupSeq=0, dataVersion="", maxGroupNum=2
        )
        assert answer.ext_fields == {"totalGroupNum": str(len(groups))}
        table = decode_body(GroupTableBody, answer.body)
        assert list(table.subscription_group_table) == groups.names()[:2]
        assert table.forbidden_table.keys() == {"CID_ONSAPI_OWNER"}
        answer = await desk.ask(Code.GET_ALL_SUBSCRIPTIONGROUP_CONFIG, maxGroupNum=-1)
        assert decode_body(GroupTableBody, answer.body).subscription_group_table == {}

    at_desk(tmp_path, scenario)


def test_a_group_that_is_asked_for_comes_into_being_if_it_may_by_use(tmp_path: Path) -> None:
    async def scenario(desk: Desk) -> None:
        answer = await desk.ask(Code.GET_SUBSCRIPTIONGROUP_CONFIG, group=GROUP)
        assert answer.body == (
            b'{"attributes":{},"brokerId":0,"consumeBroadcastEnable":true,"consumeEnable":true,'
            b'"consumeFromMinEnable":true,"consumeMessageOrderly":false,"consumeTimeoutMinute":15,'
            b'"groupName":"G","groupRetryPolicy":{"type":"CUSTOMIZED"},"groupSysFlag":0,'
            b'"notifyConsumerIdsChangedEnable":true,"retryMaxTimes":16,"retryQueueNums":1,'
            b'"whichBrokerWhenConsumeSlowly":1}'
        )
        closed = GroupTable(
            groups_file(desk.disk, tmp_path),
            desk.clock,
            GroupSettings(auto_create_enabled=False),
        )
        savers = desk.tables.savers
        handler = GroupsHandler(
            closed, desk.tables.offsets, savers.groups.durable, savers.offsets.durable
        )
        desk.handlers.update(handler.routes())
        answer = await desk.ask(Code.GET_SUBSCRIPTIONGROUP_CONFIG, group=GROUP)
        assert answer.code == ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST

    at_desk(tmp_path, scenario)


def test_a_deleted_group_keeps_its_offsets_unless_they_are_to_go(tmp_path: Path) -> None:
    async def scenario(desk: Desk) -> None:
        for is_cleaned, left in ((False, {TOPIC}), (True, set())):
            desk.tables.groups.find(GROUP)
            desk.tables.offsets.commit(GROUP, TOPIC, 0, 1)
            answer = await desk.ask(
                Code.DELETE_SUBSCRIPTIONGROUP, groupName=GROUP, cleanOffset=is_cleaned
            )
            assert answer.code == 0
            assert GROUP not in desk.tables.groups
            assert desk.tables.offsets.topics_of(GROUP) == left
        assert (await desk.ask(Code.DELETE_SUBSCRIPTIONGROUP, groupName="nope")).code == 0
        answer = await desk.ask(Code.DELETE_SUBSCRIPTIONGROUP)
        assert answer.code == ResponseCode.INVALID_PARAMETER

    at_desk(tmp_path, scenario)


def test_a_topic_is_taken_from_a_group_and_given_back(tmp_path: Path) -> None:
    async def scenario(desk: Desk) -> None:
        code = Code.UPDATE_AND_GET_GROUP_FORBIDDEN
        answer = await desk.ask(code, group=GROUP, topic=TOPIC)
        assert answer.body == b'{"group":"G","readable":true,"topic":"T"}'
        answer = await desk.ask(code, group=GROUP, topic=TOPIC, readable=False)
        assert answer.body == b'{"group":"G","readable":false,"topic":"T"}'
        assert desk.tables.groups.is_forbidden(GROUP, TOPIC, READ_INDEX)
        answer = await desk.ask(code, group=GROUP, topic=TOPIC, readable=True)
        assert answer.body == b'{"group":"G","readable":true,"topic":"T"}'
        answer = await desk.ask(code, group="a b", topic=TOPIC, readable=False)
        assert answer.code == ResponseCode.INVALID_PARAMETER
        answer = await desk.ask(code, group=GROUP, topic="a b", readable=False)
        assert answer.code == ResponseCode.INVALID_PARAMETER

    at_desk(tmp_path, scenario)
