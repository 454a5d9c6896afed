"""Consumer groups as admin clients and slaves exchange them with a broker."""

import msgspec

from downrange.model.topics import DataVersion, SubscriptionGroupConfig, TopicConfig
from downrange.protocol.bodies.heartbeat import Subscription
from downrange.protocol.bodies.json_body import Body
from downrange.protocol.integers import Int32


class TopicConfigList(Body, frozen=True, kw_only=True):
    """Body of UPDATE_AND_CREATE_TOPIC_LIST; attributes are changes, `+key` or `-key`."""

    topic_config_list: tuple[TopicConfig, ...]


class GroupConfigList(Body, frozen=True, kw_only=True):
    """Body of UPDATE_AND_CREATE_SUBSCRIPTIONGROUP_LIST; attributes as for topics."""

    group_config_list: tuple[SubscriptionGroupConfig, ...]


class GroupTable(Body, frozen=True, kw_only=True):
    """Answer to GET_ALL_SUBSCRIPTIONGROUP_CONFIG; `forbidden` has bits by group and topic."""

    data_version: DataVersion = DataVersion()
    forbidden_table: dict[str, dict[str, Int32]] = msgspec.field(default_factory=dict)
    subscription_group_table: dict[str, SubscriptionGroupConfig] = msgspec.field(
        default_factory=dict
    )


class GroupList(Body, frozen=True, kw_only=True):
    """Answer to QUERY_TOPIC_CONSUME_BY_WHO."""

    group_list: tuple[str, ...] = ()


class GroupSubscription(Body, frozen=True, kw_only=True):
    """Answer to QUERY_SUBSCRIPTION_BY_CONSUMER; nothing is wanted by a group that is not online."""

    group: str | None = None
    topic: str | None = None
    subscription_data: Subscription | None = None


class GroupForbidden(Body, frozen=True, kw_only=True):
    """Answer to UPDATE_AND_GET_GROUP_FORBIDDEN."""

    group: str
    topic: str
    readable: bool
