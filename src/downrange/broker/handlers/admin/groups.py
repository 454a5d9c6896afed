"""Consumer groups: created, changed, listed, deleted, and kept from topics."""

import logging

from downrange.broker.attributes import GROUP_ATTRIBUTES, changed_attributes
from downrange.broker.group_table import GroupTable
from downrange.broker.handlers.admin.paging import page_of
from downrange.broker.offset_table import OffsetTable
from downrange.broker.table_saver import Durable
from downrange.model.names import InvalidNameError, check_group, check_topic
from downrange.model.topics import SubscriptionGroupConfig
from downrange.protocol.bodies import groups as bodies
from downrange.protocol.bodies.json_body import decode_body, encode_body
from downrange.protocol.command import Command, response
from downrange.protocol.headers.admin_group import (
    DeleteGroupRequest,
    GetAllGroupConfigRequest,
    GetAllGroupConfigResponse,
    GetGroupConfigRequest,
    GroupForbiddenRequest,
)
from downrange.protocol.headers.fields import decode_header, encode_header
from downrange.protocol.json_text import write_json, write_json_steps
from downrange.protocol.request_codes import RequestCode
from downrange.protocol.response_codes import ResponseCode
from downrange.remoting.connection import Answer, Connection, Handler
from downrange.remoting.errors import Refused
from downrange.runtime.slices import in_slices

_log = logging.getLogger(__name__)

READ_INDEX = 2  # PermName.INDEX_PERM_READ: the bit that keeps a group from reading a topic


class GroupsHandler:
    """Changes the group table and answers when the change is durable."""

    def __init__(
        self,
        groups: GroupTable,
        offsets: OffsetTable,
        groups_durable: Durable,
        offsets_durable: Durable,
    ) -> None:
        self._groups = groups
        self._offsets = offsets
        self._groups_durable = groups_durable
        self._offsets_durable = offsets_durable

    def routes(self) -> dict[int, Handler]:
        """Which codes this serves."""
        return {
            RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP: self.create,
            RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP_LIST: self.create_list,
            RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG: self.get_all,
            RequestCode.GET_SUBSCRIPTIONGROUP_CONFIG: self.get,
            RequestCode.DELETE_SUBSCRIPTIONGROUP: self.delete,
            RequestCode.UPDATE_AND_GET_GROUP_FORBIDDEN: self.forbid,
        }

    async def create(self, request: Command, connection: Connection) -> Answer:
        """Create a group or change it."""
        config = decode_body(SubscriptionGroupConfig, request.body)
        _log.info("group %s: created or changed by %s", config.group_name, connection.address)
        self._groups.update(config, config.attributes)
        return await self._saved(request)

    async def create_list(self, request: Command, connection: Connection) -> Answer:
        """Create or change several groups; nothing is done if one of them cannot be."""
        configs = decode_body(bodies.GroupConfigList, request.body).group_config_list
        for config in configs:
            _check_group(config.group_name)
            old = self._groups.get(config.group_name)
            changed_attributes(
                GROUP_ATTRIBUTES, None if old is None else old.attributes, config.attributes
            )
        names = ", ".join(config.group_name for config in configs)
        _log.info("groups %s: created or changed by %s", names, connection.address)
        for config in configs:
            self._groups.update(config, config.attributes)
        return await self._saved(request)

    async def get_all(self, request: Command, _: Connection) -> Answer:
        """All groups, or a page of them, with what they may not consume."""
        header = decode_header(GetAllGroupConfigRequest, request.ext_fields)
        table = self._groups.to_file()
        names = page_of(
            table.groups,
            table.data_version,
            first=header.group_seq,
            version_text=header.data_version,
            count_max=header.max_group_num,
        )
        page = set(names)
        body = bodies.GroupTable(
            data_version=table.data_version,
            forbidden_table={
                group: bits for group, bits in table.forbidden.items() if group in page
            },
            subscription_group_table={name: table.groups[name] for name in names},
        )
        fields = encode_header(GetAllGroupConfigResponse(total_group_num=len(table.groups)))
        text = await in_slices(write_json_steps(body))
        return response(request, ResponseCode.SUCCESS, ext_fields=fields, body=text)

    async def get(self, request: Command, _: Connection) -> Answer:
        """One group; as in RocketMQ one that is asked for comes into being, if it may by use.

        Proxies rely on that: they ask for the group of a new consumer before it has sent anything.
        """
        group = decode_header(GetGroupConfigRequest, request.ext_fields).group
        config = self._groups.find(group)
        if config is None:
            raise Refused(
                ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST,
                f"No group in this broker: {group} does not exist, and "
                "autoCreateSubscriptionGroup is false or its name is no group's",
            )
        if not self._groups.is_durable(group):
            await self._groups_durable()
        return response(request, ResponseCode.SUCCESS, body=write_json(config))

    async def delete(self, request: Command, connection: Connection) -> Answer:
        """Delete a group, if asked for with its offsets; one that is not there is no error."""
        header = decode_header(DeleteGroupRequest, request.ext_fields)
        if not header.group_name.strip():
            raise Refused(ResponseCode.INVALID_PARAMETER, "The specified group is blank.")
        _log.info("group %s: deleted by %s", header.group_name, connection.address)
        self._groups.delete(header.group_name)
        if header.clean_offset:
            self._offsets.remove_group(header.group_name)
            await self._offsets_durable()
        return await self._saved(request)

    async def forbid(self, request: Command, _: Connection) -> Answer:
        """Whether a group may read a topic, changed before if the request says so."""
        header = decode_header(GroupForbiddenRequest, request.ext_fields)
        group, topic = header.group, header.topic
        if header.readable is not None:
            _check_group(group)
            _check_topic(topic)
            self._groups.set_forbidden(group, topic, READ_INDEX, is_forbidden=not header.readable)
        body = bodies.GroupForbidden(
            group=group,
            topic=topic,
            readable=not self._groups.is_forbidden(group, topic, READ_INDEX),
        )
        return await self._saved(request, encode_body(body))

    async def _saved(self, request: Command, body: bytes | None = None) -> Answer:
        await self._groups_durable()
        return response(request, ResponseCode.SUCCESS, body=body)


def _check_group(group: str) -> None:
    try:
        check_group(group)
    except InvalidNameError as error:
        raise Refused(ResponseCode.INVALID_PARAMETER, str(error)) from error


def _check_topic(topic: str) -> None:
    try:
        check_topic(topic)
    except InvalidNameError as error:
        raise Refused(ResponseCode.INVALID_PARAMETER, str(error)) from error
