"""How far consumer groups are behind, as the brokers say."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from downrange.admin.admin_client import AdminClient
from downrange.admin.groups import is_user_group
from downrange.client.acl_signature import Credentials
from downrange.client.settings import ClientSettings
from downrange.spark.pipelines.definition import Pipeline
from downrange.sync.io_thread import io_thread
from downrange.sync.member import SYNC_SESSIONS

TIMEOUT_S: Final = 120.0


@dataclass(frozen=True, slots=True)
class GroupLag:
    """The messages that wait for a group in a topic."""

    group: str
    topic: str
    lag: int


def read_lags(pipeline: Pipeline, groups: Sequence[str]) -> list[GroupLag]:
    """The lag of these groups, or of all that are not RocketMQ's own, by topic."""
    access = pipeline.access
    credentials = (
        Credentials(access.access_key, access.secret_key, access.security_token)
        if access.access_key
        else None
    )
    settings = ClientSettings(
        name_servers=pipeline.name_servers, credentials=credentials, tls=access.tls()
    )
    return io_thread().call(_read(settings, groups), TIMEOUT_S)


async def _read(settings: ClientSettings, groups: Sequence[str]) -> list[GroupLag]:
    async with AdminClient(settings, sessions=SYNC_SESSIONS) as admin:
        masters = (await admin.layout()).masters()
        wanted = groups or [
            group for group in await admin.groups.configs(masters) if is_user_group(group)
        ]
        found: list[GroupLag] = []
        for group in wanted:
            lags: dict[str, int] = {}
            progress = await admin.groups.progress(group, masters)
            for queue, one in progress.queues.items():
                behind = max(one.broker_offset - one.consumer_offset, 0)
                lags[queue.topic] = lags.get(queue.topic, 0) + behind
            found.extend(GroupLag(group, topic, lag) for topic, lag in sorted(lags.items()))
        return found
