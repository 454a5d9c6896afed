"""Our name server and Apache's, side by side: one Apache broker registers with both."""

import asyncio
import json
import re
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from interop import apache, our_processes
from interop.releases import APACHE_4_9_CLIENT, APACHE_5_5, Release

from downrange.protocol.bodies.json_body import decode_body
from downrange.protocol.bodies.route import TopicRoute
from downrange.protocol.command import Command
from downrange.protocol.loose_json import read_json
from downrange.protocol.request_codes import RequestCode as Code
from downrange.remoting.client import RemotingClient
from downrange.remoting.network import TcpNetwork

pytestmark = pytest.mark.interop

PROGRAM_SECONDS_MAX = 300.0
APPEAR_SECONDS_MAX = 60.0
TOPIC = "TopicOfBoth"
REQUEST_TOPIC = "RequestsOfBoth"

Request = tuple[int, dict[str, str] | None, bytes | None]


@dataclass(frozen=True, slots=True)
class Cluster:
    """Two name servers, a broker that registers with both, and a folder for everybody else."""

    ours: apache.Server
    theirs: apache.Server
    broker: apache.Server
    folder: Path

    def compare(self, command: str, *arguments: str) -> str:
        """Run an mqadmin command against each name server; both must print the same."""
        outputs = []
        for server in (self.ours, self.theirs):
            folder = self.folder / "mqadmin"
            output = our_processes.mqadmin(folder, server.address, command, *arguments)
            outputs.append(output.replace(server.address, "NAME-SERVER"))
        # Maps of Java have no order, and load figures differ from one second to the next.
        ours, theirs = (
            sorted(_without_load(line) if command == "clusterList" else line for line in lines)
            for lines in (output.splitlines() for output in outputs)
        )
        assert ours == theirs
        return outputs[0]

    def wait_for_topic(self, topic: str) -> None:
        """Wait until both name servers know a topic; brokers register with one after the other."""
        for server in (self.ours, self.theirs):
            wait_for_topic(server, topic)


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    folder = tmp_path_factory.mktemp("cluster")
    with (
        our_processes.start_name_server(folder / "ours") as ours,
        apache.start_name_server(folder / "theirs") as theirs,
    ):
        plan = apache.plan_broker(
            folder / "broker",
            folder / "store",
            f"{ours.address};{theirs.address}",
            {"enablePropertyFilter": "true"},
        )
        with apache.start_broker(plan) as broker:
            cluster = Cluster(ours, theirs, broker, folder)
            cluster.wait_for_topic("TBW102")
            yield cluster


def ask(address: str, requests: list[Request]) -> list[Command]:
    """Send requests over one connection, one after the other."""

    async def main() -> list[Command]:
        client = RemotingClient(TcpNetwork())
        answers = [
            await client.call(address, code, fields, body, timeout_s=10)
            for code, fields, body in requests
        ]
        client.close()
        return answers

    return asyncio.run(main())


def routes(address: str, topic: str) -> TopicRoute | None:
    (answer,) = ask(address, [(Code.GET_ROUTEINFO_BY_TOPIC, {"topic": topic}, None)])
    return decode_body(TopicRoute, answer.body) if answer.code == 0 else None


def wait_for_topic(name_server: apache.Server, topic: str) -> None:
    """Wait until a name server knows a topic.

    A starting broker registers with those it is connected to already, and often enough that is
    nobody; ten seconds later it tries again.
    """
    deadline = time.monotonic() + APPEAR_SECONDS_MAX
    while routes(name_server.address, topic) is None:
        assert time.monotonic() < deadline, f"{name_server.name} never heard of {topic}"
        time.sleep(apache.POLL_SECONDS)


def _without_load(line: str) -> str:
    """The columns of clusterList that say who a broker is: cluster, name, id, address, version."""
    return " ".join(line.split()[:5])


def test_routes_of_an_apache_broker_are_the_same_in_both(cluster: Cluster) -> None:
    (answer,) = ask(cluster.theirs.address, [(Code.GET_ALL_TOPIC_LIST_FROM_NAMESERVER, None, None)])
    assert answer.body is not None
    topics = json.loads(answer.body)["topicList"]
    assert "TBW102" in topics
    for topic in topics:
        ours, theirs = routes(cluster.ours.address, topic), routes(cluster.theirs.address, topic)
        assert ours == theirs, topic
        assert ours is not None
        assert ours.broker_datas[0].broker_addrs == {0: cluster.broker.address}


def test_mqadmin_prints_the_same_for_both(cluster: Cluster) -> None:
    created = our_processes.mqadmin(
        cluster.folder / "mqadmin",
        cluster.ours.address,
        "updateTopic", "-c", "DefaultCluster", "-t", "MadeByAdmin", "-r", "3", "-w", "5",
    )  # fmt: skip
    assert "create topic to" in created
    cluster.wait_for_topic("MadeByAdmin")
    assert cluster.broker.address in cluster.compare("clusterList")
    assert "MadeByAdmin" in cluster.compare("topicList")
    assert "MadeByAdmin" in cluster.compare("topicList", "-c")
    route = cluster.compare("topicRoute", "-t", "MadeByAdmin")
    assert '"readQueueNums":3' in route.replace(" ", "")
    assert "DefaultCluster" in cluster.compare("topicClusterList", "-t", "MadeByAdmin")
    wiped = cluster.compare("wipeWritePerm", "-b", "broker-a")
    assert "OK, " in wiped
    assert '"perm":4' in cluster.compare("topicRoute", "-t", "MadeByAdmin").replace(" ", "")
    assert "OK, " in cluster.compare("addWritePerm", "-b", "broker-a")
    assert '"perm":6' in cluster.compare("topicRoute", "-t", "MadeByAdmin").replace(" ", "")
    assert "success" in cluster.compare("updateKvConfig", "-s", "N", "-k", "k", "-v", "v")
    assert "success" in cluster.compare("deleteKvConfig", "-s", "N", "-k", "k")
    cluster.compare("updateOrderConf", "-t", "MadeByAdmin", "-v", "broker-a:5", "-m", "put")
    assert "broker-a:5" in cluster.compare("updateOrderConf", "-t", "MadeByAdmin", "-m", "get")
    assert "success" in cluster.compare(
        "updateNamesrvConfig", "-k", "orderMessageEnable", "-v", "true"
    )
    assert "broker-a:5" in cluster.compare("topicRoute", "-t", "MadeByAdmin")
    shown = our_processes.mqadmin(
        cluster.folder / "mqadmin", cluster.ours.address, "getNamesrvConfig"
    )
    assert re.search(r"orderMessageEnable\s*=\s*true", shown)
    deleted = our_processes.mqadmin(
        cluster.folder / "mqadmin",
        f"{cluster.ours.address};{cluster.theirs.address}",
        "deleteTopic", "-c", "DefaultCluster", "-t", "MadeByAdmin",
    )  # fmt: skip
    assert "success" in deleted
    assert routes(cluster.ours.address, "MadeByAdmin") is None
    assert "MadeByAdmin" not in cluster.compare("topicList")


@pytest.mark.parametrize("release", [APACHE_5_5, APACHE_4_9_CLIENT], ids=lambda r: str(r.version))
def test_java_clients_find_their_broker_through_our_name_server(
    cluster: Cluster, release: Release
) -> None:
    for topic in (TOPIC, REQUEST_TOPIC):
        our_processes.mqadmin(
            cluster.folder / "mqadmin",
            cluster.ours.address,
            "updateTopic", "-b", cluster.broker.address, "-t", topic, "-r", "4", "-w", "4",
        )  # fmt: skip
        cluster.wait_for_topic(topic)
    apache.run_program(
        "ClientSession",
        {
            "nameServer": cluster.ours.address,
            "name": f"client-{release.version.replace('.', '-')}",
            "topic": TOPIC,
            "requestTopic": REQUEST_TOPIC,
            "singles": 40,
            "full": "true",
        },
        cluster.folder / f"client-{release.version}",
        seconds_max=PROGRAM_SECONDS_MAX,
        release=release,
    )


BROKER = {
    "clusterName": "c",
    "brokerName": "b",
    "brokerAddr": "127.0.0.1:5",
    "brokerId": "0",
    "haServerAddr": "127.0.0.1:6",
}
SLAVE = {**BROKER, "brokerAddr": "127.0.0.1:7", "brokerId": "2", "haServerAddr": "127.0.0.1:8"}
TABLE = (
    b'{"filterServerList":["f:1"],"topicConfigSerializeWrapper":{"dataVersion":{"counter":1,'
    b'"stateVersion":0,"timestamp":1},"topicConfigTable":{"T":{"topicName":"T"},"U":'
    b'{"topicName":"U","topicSysFlag":1,"perm":2},"V":{"topicName":"V","topicSysFlag":2}}}}'
)
ONE_TOPIC = (
    b'{"topicConfigSerializeWrapper":{"dataVersion":{"counter":2,"stateVersion":0,"timestamp":1},'
    b'"topicConfigTable":{"T":{"topicName":"T"}}}}'
)
VERSION = b'{"counter":1,"stateVersion":0,"timestamp":1}'
NAMED = {"clusterName": "c", "brokerName": "b"}
QUESTIONS: list[Request] = [
    (Code.GET_BROKER_CLUSTER_INFO, None, None),
    (Code.GET_ROUTEINFO_BY_TOPIC, {"topic": "T"}, None),
    (Code.GET_ROUTEINFO_BY_TOPIC, {"topic": "U", "acceptStandardJsonOnly": "true"}, None),
    (Code.GET_ALL_TOPIC_LIST_FROM_NAMESERVER, None, None),
    (Code.GET_TOPICS_BY_CLUSTER, {"cluster": "c"}, None),
    (Code.GET_TOPICS_BY_CLUSTER, {"cluster": "nix"}, None),
    (Code.GET_SYSTEM_TOPIC_LIST_FROM_NS, None, None),
    (Code.GET_UNIT_TOPIC_LIST, None, None),
    (Code.GET_HAS_UNIT_SUB_TOPIC_LIST, None, None),
    (Code.GET_HAS_UNIT_SUB_UNUNIT_TOPIC_LIST, None, None),
    (Code.GET_BROKER_MEMBER_GROUP, NAMED, None),
    (Code.QUERY_DATA_VERSION, BROKER, VERSION),
    (Code.QUERY_DATA_VERSION, SLAVE, VERSION),
]
SAME_REQUESTS: list[Request] = [
    *QUESTIONS,
    (Code.PUT_KV_CONFIG, {"namespace": "N", "key": "b", "value": 'é\n"1'}, None),
    (Code.PUT_KV_CONFIG, {"namespace": "N", "key": "a", "value": "2"}, None),
    (Code.PUT_KV_CONFIG, {"namespace": "A", "key": "x", "value": "2"}, None),
    (Code.PUT_KV_CONFIG, {"namespace": "A"}, None),
    (Code.GET_KV_CONFIG, {"namespace": "N", "key": "b"}, None),
    (Code.GET_KV_CONFIG, {"namespace": "N", "key": "nix"}, None),
    (Code.DELETE_KV_CONFIG, {"namespace": "A", "key": "x"}, None),
    (Code.DELETE_KV_CONFIG, {"namespace": "nix", "key": "x"}, None),
    (Code.GET_KVLIST_BY_NAMESPACE, {"namespace": "N"}, None),
    (Code.GET_KVLIST_BY_NAMESPACE, {"namespace": "A"}, None),
    (Code.GET_KVLIST_BY_NAMESPACE, {"namespace": "nix"}, None),
    (Code.UPDATE_NAMESRV_CONFIG, None, b"kvConfigPath=/nowhere\n"),
    (Code.BROKER_HEARTBEAT, BROKER, None),
    (Code.UNREGISTER_BROKER, BROKER, None),
    (Code.REGISTER_TOPIC_IN_NAMESRV, {"topic": "W"}, b'{"queueDatas":[{"brokerName":"b"}]}'),
    (Code.REGISTER_BROKER, BROKER, ONE_TOPIC),
    (Code.REGISTER_BROKER, {**BROKER, "bodyCrc32": "77"}, TABLE),
    (Code.REGISTER_BROKER, BROKER, TABLE),
    (Code.REGISTER_BROKER, SLAVE, None),
    *QUESTIONS,
    (Code.REGISTER_BROKER, BROKER, ONE_TOPIC.replace(b'"T"', b'"X"')),
    (Code.REGISTER_TOPIC_IN_NAMESRV, {"topic": "W"}, b'{"queueDatas":[{"brokerName":"b"}]}'),
    (Code.WIPE_WRITE_PERM_OF_BROKER, {"brokerName": "b"}, None),
    *QUESTIONS,
    (Code.ADD_WRITE_PERM_OF_BROKER, {"brokerName": "b"}, None),
    (Code.DELETE_TOPIC_IN_NAMESRV, {"topic": "T"}, None),
    (Code.DELETE_TOPIC_IN_NAMESRV, {"topic": "U", "clusterName": "nix"}, None),
    (Code.DELETE_TOPIC_IN_NAMESRV, {"topic": "V", "clusterName": "c"}, None),
    *QUESTIONS,
    (Code.REGISTER_BROKER, {**SLAVE, "brokerId": "0"}, TABLE.replace(b'Version":0', b'Version":1')),
    *QUESTIONS,
    (Code.REGISTER_BROKER, BROKER, TABLE),
    *QUESTIONS,
    (77_777, None, None),
]


def test_both_give_the_same_answers_to_the_same_requests(tmp_path: Path) -> None:
    with (
        our_processes.start_name_server(tmp_path / "ours") as ours,
        apache.start_name_server(tmp_path / "theirs") as theirs,
    ):
        answers = [ask(server.address, SAME_REQUESTS) for server in (ours, theirs)]
        files = [(tmp_path / name / "kvConfig.json").read_bytes() for name in ("ours", "theirs")]
    assert files[0] == files[1]
    for request, mine, apaches in zip(SAME_REQUESTS, *answers, strict=True):
        assert _facts(mine) == _facts(apaches), request


def _facts(answer: Command) -> tuple[int, dict[str, str], object]:
    """What a peer acts on: not the wording of remarks, and not the order of lists."""
    return answer.code, answer.ext_fields or {}, _sorted(read_json(answer.body or b"null"))


def _sorted(value: object) -> object:
    if isinstance(value, dict):
        return {str(key): _sorted(member) for key, member in value.items()}
    if isinstance(value, list):
        return sorted((_sorted(item) for item in value), key=repr)
    return value


@pytest.mark.parametrize("end", ["stopped", "killed"])
def test_an_apache_broker_that_ends_is_gone_at_once(tmp_path: Path, end: str) -> None:
    with our_processes.start_name_server(tmp_path / "ours") as ours:
        plan = apache.plan_broker(tmp_path / "broker", tmp_path / "store", ours.address)
        with apache.start_broker(plan) as broker:
            wait_for_topic(ours, "TBW102")
            if end == "stopped":
                broker.stop()
            else:
                broker.kill()
        deadline = time.monotonic() + 5
        while routes(ours.address, "TBW102") is not None:
            assert time.monotonic() < deadline
            time.sleep(apache.POLL_SECONDS)
