"""Producers on a cluster in memory, a way to see what they sent, and brokers with fixed answers."""

from collections.abc import Callable
from dataclasses import replace

from downrange.client.message import ReceivedMessage
from downrange.client.producer import Producer
from downrange.client.record_reader import read_records
from downrange.client.session import Session
from downrange.client.session_table import SessionTable
from downrange.client.settings import ClientSettings, ProducerSettings
from downrange.model.topics import DataVersion, TopicConfig
from downrange.protocol.bodies.registration import (
    Registration,
    TopicTable,
    body_crc,
    encode_registration,
)
from downrange.protocol.command import Command, response
from downrange.protocol.headers.fields import encode_header
from downrange.protocol.headers.nameserver import RegisterBrokerRequest
from downrange.protocol.headers.pull import PullRequest
from downrange.protocol.request_codes import RequestCode
from downrange.remoting.client import RemotingClient
from downrange.remoting.connection import Answer, Connection
from downrange.remoting.server import RemotingServer
from downrange.runtime.service import Supervisor
from downrange.testing.cluster import MemoryCluster


def fail(name: str, error: BaseException) -> None:
    raise AssertionError(name) from error


def producer_of(
    cluster: MemoryCluster,
    group: str = "senders",
    settings: ProducerSettings | None = None,
    client: ClientSettings | None = None,
    table: SessionTable | None = None,
) -> Producer:
    return Producer(
        group,
        client=client or cluster.client_settings(),
        settings=settings,
        sessions=table or SessionTable(nonce=7, around=cluster.surroundings()),
    )


async def stored(cluster: MemoryCluster, topic: str) -> list[ReceivedMessage]:
    """All messages of a topic on all running brokers, by broker, queue and offset."""
    session = Session(cluster.client_settings(), "10.0.0.9@looks", cluster.surroundings())
    await session.start()
    await session.routes.refresh(topic)
    found: list[ReceivedMessage] = []
    for queue in session.routes.subscribe_queues(topic):
        address = session.routes.master_address(queue.broker_name)
        assert address is not None
        header = PullRequest(
            consumer_group="looks",
            topic=topic,
            queue_id=queue.queue_id,
            queue_offset=0,
            max_msg_nums=32,
            sys_flag=4,
            commit_offset=0,
            suspend_timeout_millis=0,
            subscription="*",
            sub_version=0,
        )
        answer = await session.calls.pull(address, header, timeout_s=5)
        found += read_records(answer.records, broker_name=queue.broker_name)
    await session.shutdown()
    return found


class ScriptedBroker:
    """A broker that answers every send as it is told to, and keeps the requests."""

    def __init__(
        self,
        cluster: MemoryCluster,
        name: str,
        port: int,
        answer: Callable[[Command], Answer],
    ) -> None:
        self._cluster = cluster
        self.name = name
        self.port = port
        self.requests: list[Command] = []
        self._answer = answer
        self._supervisor = Supervisor(fail)
        self._server = RemotingServer(
            cluster.network,
            self._supervisor,
            {
                RequestCode.SEND_MESSAGE_V2: self._take,
                RequestCode.SEND_BATCH_MESSAGE: self._take,
                RequestCode.HEART_BEAT: lambda request, _: response(request, 0),
                RequestCode.UNREGISTER_CLIENT: lambda request, _: response(request, 0),
            },
        )
        self._client = RemotingClient(cluster.network)

    def _take(self, request: Command, _connection: Connection) -> Answer:
        self.requests.append(request)
        return self._answer(request)

    async def start(self, *topics: str, perm: int = 6, broker_id: int = 0) -> None:
        await self._server.listen("127.0.0.1", self.port)
        configs = {
            topic: TopicConfig(topic_name=topic, read_queue_nums=4, write_queue_nums=4, perm=perm)
            # A name server takes a single topic only from a broker that it knows.
            for topic in (*topics, "another")
        }
        version = DataVersion(counter=1)
        body = encode_registration(
            Registration(
                topic_config_serialize_wrapper=TopicTable(
                    topic_config_table=configs, data_version=version
                )
            ),
            compressed=False,
        )
        header = RegisterBrokerRequest(
            broker_name=self.name,
            broker_addr=f"127.0.0.1:{self.port}",
            cluster_name="DefaultCluster",
            ha_server_addr="127.0.0.1:1",
            broker_id=broker_id,
            body_crc32=body_crc(body),
        )
        for address in self._cluster.name_server_addresses:
            answer = await self._client.call(
                address,
                RequestCode.REGISTER_BROKER,
                encode_header(header),
                body,
                timeout_s=3,
            )
            assert answer.code == 0, answer.remark

    async def stop(self) -> None:
        self._client.close()
        await self._server.stop()
        await self._supervisor.stop()


def accepts(request: Command) -> Command:
    """A broker that stores everything."""
    fields = {"msgId": "0A00000100002A9F0000000000001267", "queueId": "1", "queueOffset": "5"}
    return response(request, 0, ext_fields=fields)


def with_code(code: int) -> Callable[[Command], Command]:
    """A broker that answers everything with a code."""

    def answer(request: Command) -> Command:
        return replace_code(accepts(request), code)

    return answer


def replace_code(command: Command, code: int) -> Command:
    return Command(
        code=code,
        opaque=command.opaque,
        flag=command.flag,
        remark="as scripted",
        ext_fields=command.ext_fields,
    )


def settings(**changes: object) -> ProducerSettings:
    return replace(ProducerSettings(), **changes)  # type: ignore[arg-type]
