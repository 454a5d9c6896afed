"""Name servers in memory and brokers that register with them, for the tests beside this file."""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import replace
from pathlib import Path

from downrange.model.topics import DataVersion, TopicConfig
from downrange.nameserver.broker_names import BrokerFacts
from downrange.nameserver.server import NameServer
from downrange.nameserver.settings import NameServerSettings
from downrange.protocol.bodies.json_body import decode_body
from downrange.protocol.bodies.registration import Registration, TopicTable, encode_registration
from downrange.protocol.bodies.route import QueueMapping, TopicRoute
from downrange.protocol.command import Command
from downrange.protocol.request_codes import RequestCode
from downrange.remoting.client import RemotingClient
from downrange.remoting.memory import MemoryNetwork
from downrange.runtime.disk import Disk
from downrange.testing.virtual_time import VirtualClock, run

MASTER = BrokerFacts(
    cluster="c", name="b", broker_id=0, address="10.0.0.1:10911", ha_address="10.0.0.1:10912"
)
SLAVE = replace(MASTER, broker_id=1, address="10.0.0.2:10911", ha_address="10.0.0.2:10912")
VERSION = DataVersion(counter=1, state_version=0, timestamp=7)
NAME_SERVER = "127.0.0.1:9876"


def registration(
    *topics: TopicConfig | str,
    version: DataVersion = VERSION,
    filters: tuple[str, ...] = (),
    mappings: dict[str, QueueMapping] | None = None,
) -> Registration:
    """What a broker with these topics registers; two of them unless told otherwise."""
    configs = [
        TopicConfig(topic_name=topic) if isinstance(topic, str) else topic
        for topic in topics or ("T", "U")
    ]
    table = TopicTable(
        topic_config_table={config.topic_name: config for config in configs},
        data_version=version,
        topic_queue_mapping_info_map=mappings or {},
    )
    return Registration(topic_config_serialize_wrapper=table, filter_server_list=filters)


def register_fields(facts: BrokerFacts, **more: str) -> dict[str, str]:
    """The header of a registration."""
    return {
        "clusterName": facts.cluster,
        "brokerName": facts.name,
        "brokerAddr": facts.address,
        "brokerId": str(facts.broker_id),
        "haServerAddr": facts.ha_address,
        **more,
    }


class Cluster:
    """A name server and one client, on a network in memory."""

    def __init__(self, folder: Path, settings: NameServerSettings, port: int) -> None:
        self.network = MemoryNetwork()
        self.client = RemotingClient(self.network)
        self.server = NameServer(
            replace(
                settings,
                port=port,
                kv_config_path=folder / "kvConfig.json",
                config_store_path=folder / "namesrv.properties",
            ),
            self.network,
            VirtualClock(),
            Disk(),
            on_failure=_fail,
        )

    async def ask(
        self,
        code: RequestCode,
        fields: dict[str, str] | None = None,
        body: bytes | None = None,
        client: RemotingClient | None = None,
    ) -> Command:
        """Send a request to the name server."""
        return await (client or self.client).call(NAME_SERVER, code, fields, body, timeout_s=3)

    async def register(
        self,
        facts: BrokerFacts,
        content: Registration | None = None,
        client: RemotingClient | None = None,
        **more: str,
    ) -> Command:
        """Register a broker; `more` adds fields to the header."""
        body = encode_registration(content or registration(), compressed=False)
        fields = register_fields(facts, **more)
        return await self.ask(RequestCode.REGISTER_BROKER, fields, body, client)

    async def route(self, topic: str, **more: str) -> TopicRoute | None:
        """The route of a topic, or None if there is none."""
        answer = await self.ask(RequestCode.GET_ROUTEINFO_BY_TOPIC, {"topic": topic, **more})
        return decode_body(TopicRoute, answer.body) if answer.code == 0 else None


def with_name_server(
    folder: Path,
    test: Callable[[Cluster], Awaitable[None]],
    settings: NameServerSettings | None = None,
) -> None:
    """Run a test in virtual time against a name server of its own."""

    async def main() -> None:
        cluster = Cluster(folder, settings or NameServerSettings(), 9876)
        assert await cluster.server.start() == "0.0.0.0:9876"
        await test(cluster)
        await cluster.server.stop()

    run(main())


async def pass_time(seconds: float) -> None:
    """Let virtual time go by."""
    future = asyncio.get_running_loop().create_future()
    asyncio.get_running_loop().call_later(seconds, future.set_result, None)
    await future


def _fail(name: str, error: BaseException) -> None:
    raise AssertionError(name) from error
