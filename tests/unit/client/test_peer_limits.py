"""What a name server or broker answers cannot make a client allocate without limit."""

import logging
import random
import tracemalloc
from pathlib import Path
from typing import Self

import pytest
from unit.client.producing import fail
from unit.spark.scripted_server import ScriptedServer

from downrange.admin.requests import Requests
from downrange.broker.routes import TopicRoutes
from downrange.client.errors import BadAnswerError, BrokerRefusal, RouteLimitError
from downrange.client.session import Session
from downrange.client.settings import ClientSettings
from downrange.model.topics import MessageQueue
from downrange.protocol.bodies.consumer import ConsumerList
from downrange.protocol.bodies.json_body import encode_body
from downrange.protocol.bodies.queues import LockResponse
from downrange.protocol.bodies.route import BrokerData, QueueData, QueueMapping, TopicRoute
from downrange.protocol.command import Command, response
from downrange.protocol.errors import RemoteProtocolError
from downrange.protocol.request_codes import RequestCode
from downrange.protocol.route_limits import RouteLimits, check_route
from downrange.remoting.client import RemotingClient
from downrange.remoting.server import RemotingServer
from downrange.runtime.service import Supervisor
from downrange.spark.cluster import Cluster
from downrange.spark.connecting import Connecting
from downrange.testing.cluster import MemoryCluster
from downrange.testing.virtual_time import run

PORT = 20_000
ADDRESS = f"127.0.0.1:{PORT}"
INT_MAX = (1 << 31) - 1
BROKER = BrokerData(cluster="c", broker_name="b", broker_addrs={0: "127.0.0.1:1"})


def _route(**changes: object) -> TopicRoute:
    queues = QueueData(broker_name="b", read_queue_nums=4, write_queue_nums=4, perm=6)
    fields = {"queue_datas": (queues,), "broker_datas": (BROKER,), **changes}
    return TopicRoute(**fields)  # type: ignore[arg-type]


def _queues(read: int, write: int) -> tuple[QueueData, ...]:
    return (QueueData(broker_name="b", read_queue_nums=read, write_queue_nums=write, perm=6),)


def _static(total: int) -> dict[str, QueueMapping]:
    return {"b": QueueMapping(scope="s", total_queues=total, bname="b", curr_id_map={0: 0})}


TOO_LARGE = {
    "read queues": _route(queue_datas=_queues(INT_MAX, 4)),
    "write queues": _route(queue_datas=_queues(4, INT_MAX)),
    "queues of many brokers": _route(queue_datas=_queues(60_000, 1) * 2),
    "queues in its order": _route(order_topic_conf=f"b:{INT_MAX}"),
    "a number without end": _route(order_topic_conf="b:" + "9" * 10_000),
    "static queues": _route(topic_queue_mapping_by_broker=_static(INT_MAX)),
    "broker names": _route(broker_datas=(BROKER,) * 5_000),
    "entries for brokers": _route(queue_datas=_queues(0, 0) * 5_000),
    "addresses": _route(
        broker_datas=(BrokerData(broker_name="b", broker_addrs=dict.fromkeys(range(65), "x:1")),)
    ),
    "a broker name": _route(broker_datas=(BrokerData(broker_name="b" * 300),)),
}


@pytest.mark.parametrize("route", TOO_LARGE.values(), ids=TOO_LARGE)
def test_a_route_beyond_a_limit_is_refused_and_the_limit_named(route: TopicRoute) -> None:
    with pytest.raises(RemoteProtocolError, match="the limit is"):
        check_route(route, RouteLimits())


@pytest.mark.parametrize(
    "route",
    [
        _route(),
        _route(queue_datas=_queues(100_000, 100_000)),
        _route(queue_datas=_queues(-1, -1)),
        _route(order_topic_conf="b:4;c:2"),
        _route(topic_queue_mapping_by_broker=_static(64)),
    ],
)
def test_a_route_within_the_limits_is_taken(route: TopicRoute) -> None:
    check_route(route, RouteLimits())


class _Peer:
    """A name server and broker in one that answers what a test tells it to."""

    def __init__(self, cluster: MemoryCluster, code: RequestCode) -> None:
        self.answer: bytes | None = b""
        self.remark: str | None = None
        self.code = 0
        self._supervisor = Supervisor(fail)
        self._server = RemotingServer(cluster.network, self._supervisor, {code: self._serve})
        self.session = Session(
            ClientSettings(name_servers=ADDRESS, client_ip="10.0.0.1"),
            "me@1",
            cluster.surroundings(),
        )

    def _serve(self, request: Command, _: object) -> Command:
        return response(request, self.code, remark=self.remark, body=self.answer)

    async def __aenter__(self) -> Self:
        await self._server.listen("127.0.0.1", PORT)
        await self.session.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.session.shutdown()
        await self._server.stop()
        await self._supervisor.stop()


def test_a_huge_route_allocates_nothing_and_the_old_one_stays(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async def main() -> None:
        async with (
            MemoryCluster(tmp_path, broker_names=()) as cluster,
            _Peer(cluster, RequestCode.GET_ROUTEINFO_BY_TOPIC) as peer,
        ):
            routes = peer.session.routes
            peer.answer = encode_body(_route())
            await routes.refresh("orders")
            peer.answer = encode_body(TOO_LARGE["read queues"])
            tracemalloc.start()
            try:
                with pytest.raises(RouteLimitError, match=r"'orders'.*route_queues_max"):
                    await routes.refresh("orders")
                assert tracemalloc.get_traced_memory()[1] < 10_000_000
            finally:
                tracemalloc.stop()
            assert len(routes.subscribe_queues("orders")) == 4
            await routes.refresh_all(["orders", "others"])
            admin = Requests(peer.session.peers, peer.session.name_servers, timeout_s=3)
            with pytest.raises(RouteLimitError):
                await admin.route("orders")

    with caplog.at_level(logging.WARNING, "downrange.client.routes"):
        run(main())
    refused = [one for one in caplog.records if "was refused" in one.getMessage()]
    assert len(refused) == 2, "one bad route does not keep the others from being refreshed"


def test_a_route_of_many_megabytes_is_not_decoded(tmp_path: Path) -> None:
    async def main() -> None:
        async with (
            MemoryCluster(tmp_path, broker_names=()) as cluster,
            _Peer(cluster, RequestCode.GET_ROUTEINFO_BY_TOPIC) as peer,
        ):
            peer.answer = b'{"queueDatas":[' + b"[]," * 3_000_000 + b"[]]}"
            with pytest.raises(BadAnswerError, match="bytes, the limit is 8388608"):
                await peer.session.routes.refresh("orders")

    run(main())


def test_a_list_of_clients_has_a_limit(tmp_path: Path) -> None:
    async def main() -> None:
        async with (
            MemoryCluster(tmp_path, broker_names=()) as cluster,
            _Peer(cluster, RequestCode.GET_CONSUMER_LIST_BY_GROUP) as peer,
        ):
            peer.answer = encode_body(ConsumerList(consumer_id_list=("c",) * 65_536))
            assert len(await peer.session.calls.consumer_ids(ADDRESS, "g")) == 65_536
            peer.answer = encode_body(ConsumerList(consumer_id_list=("c",) * 65_537))
            with pytest.raises(BadAnswerError, match="65537 clients, the limit is 65536"):
                await peer.session.calls.consumer_ids(ADDRESS, "g")

    run(main())


def test_only_queues_that_were_asked_for_are_locked(tmp_path: Path) -> None:
    async def main() -> None:
        async with (
            MemoryCluster(tmp_path, broker_names=()) as cluster,
            _Peer(cluster, RequestCode.LOCK_BATCH_MQ) as peer,
        ):
            queues = tuple(MessageQueue("orders", "b", at) for at in range(1000))
            peer.answer = encode_body(LockResponse(locked=queues))
            calls = peer.session.calls
            locked = await calls.lock_queues(ADDRESS, "g", "me", queues[:2])
            assert locked == set(queues[:2])

    run(main())


def test_a_long_remark_is_cut_in_the_error(tmp_path: Path) -> None:
    async def main() -> None:
        async with (
            MemoryCluster(tmp_path, broker_names=()) as cluster,
            _Peer(cluster, RequestCode.GET_ROUTEINFO_BY_TOPIC) as peer,
        ):
            peer.code, peer.remark, peer.answer = 1, "x" * 1_000_000, None
            with pytest.raises(BrokerRefusal, match=r"\(1000000 characters\)") as caught:
                await peer.session.routes.refresh("orders")
            assert len(str(caught.value)) < 5_000
            assert len(caught.value.remark) < 5_000

    run(main())


def test_a_broker_that_asks_for_a_huge_route_does_without_it(tmp_path: Path) -> None:
    async def main() -> None:
        async with (
            MemoryCluster(tmp_path, broker_names=()) as cluster,
            _Peer(cluster, RequestCode.GET_ROUTEINFO_BY_TOPIC) as peer,
        ):
            client = RemotingClient(cluster.network)
            routes = TopicRoutes(client, lambda: [ADDRESS], cluster.clock, random.Random(1))
            peer.answer = encode_body(_route(queue_datas=_queues(9_000, 1) * 12))
            assert await routes.readable_queues("orders") is None
            peer.answer = encode_body(_route())
            assert len(await routes.readable_queues("orders") or ()) == 4
            client.close()

    run(main())


def test_spark_refuses_a_huge_route() -> None:
    def script(command: Command) -> list[Command]:
        return [response(command, 0, body=encode_body(TOO_LARGE["read queues"]))]

    with ScriptedServer(script) as server:
        cluster = Cluster(Connecting(name_servers=(server.address,), timeout_s=20.0, retries=0))
        with pytest.raises(RouteLimitError, match="the limit is 100000"):
            cluster.queues("orders")
        cluster.close()
