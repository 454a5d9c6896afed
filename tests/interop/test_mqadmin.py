"""RocketMQ's `mqadmin` prints of our cluster what it prints of Apache's under the same load.

Each command runs against both; addresses, times and rates are masked, everything else is equal.
With DOWNRANGE_ORACLE=1 (`make oracle`) both clusters are Apache's.
"""

import json
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from interop.admin_console import running_console
from interop.client_cluster import running_cluster, wants_apache
from interop.two_clusters import TwoClusters

from downrange.broker.java_keys import JAVA_KEYS
from downrange.broker.settings import BrokerSettings, StoreFileSettings
from downrange.runtime.settings import keys_of

pytestmark = pytest.mark.interop

MINE, APACHES = "1", "2"
ROUND_TRIP = r"rt=\d+ms|(?<=true )\d+$"
MESSAGE_ID = r"\b[0-9A-F]{56}\b|(?<=BROKER-HEX)[0-9A-F]{16}\b"


@pytest.fixture(scope="module")
def both(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TwoClusters]:
    folder = tmp_path_factory.mktemp("mqadmin")
    with (
        running_cluster(folder / "mine") as mine,
        running_cluster(folder / "apaches", of_apache=True) as apaches,
        running_console(folder / "console") as console,
    ):
        two = TwoClusters(console, {MINE: mine, APACHES: apaches})
        for topic, queues in (("orders", "4"), ("audit", "2")):
            two.do("updateTopic", "-b", "BROKER", "-t", topic, "-r", queues, "-w", queues)
            two.look_until(f'"writeQueueNums":{queues}', "topicRoute", "-t", topic)
        for label, cluster in two.clusters.items():
            console.load(label, cluster.name_server)
        two.look_until("Consume Diff Total: 0", "consumerProgress", "-g", "billing")
        yield two


LOOKS = """
clusterList
clusterList -m
topicRoute -t orders
topicRoute -t orders -l
topicStatus -t orders
topicStatus -t audit -c DefaultCluster
topicClusterList -t orders
allocateMQ -t orders -i 10.0.0.1,10.0.0.2
consumerProgress -g billing
consumerProgress -g billing -s true
consumerProgress -g archive
consumerProgress -g archive -t audit
consumerProgress -g archive -t audit -c DefaultCluster
consumerConnection -g billing
consumerConnection -g billing -b BROKER
producerConnection -g shop -t orders
getConsumerConfig -g billing
getConsumerConfig -g nobody
queryMsgByKey -t orders -k key-7
queryMsgByKey -t orders -k shared
queryMsgByKey -t orders -k shared -m 5
queryMsgByOffset -t orders -b broker-a -i 1 -o 3
printMsg -t audit
printMsg -t audit -d true
printMsg -t orders -s tag-1 -d true
printMsgByQueue -t orders -a broker-a -i 1 -p true -d true
printMsgByQueue -t orders -a broker-a -i 1 -p true -d true -f true
consumeMessage -t audit
consumeMessage -t audit -b broker-a -i 1
consumeMessage -t audit -b broker-a -i 1 -o 2 -c 2
queryCq -t orders -q 1 -i 2 -c 3
queryCq -t orders -q 1 -i 2 -c 3 -g billing
setConsumeMode -b BROKER -t orders -g billing -m PULL
sendMsgStatus -b broker-a -c 0
""".strip().splitlines()
# The order is that of a hash map, and not the same in each JVM or table.
UNORDERED_LOOKS = """
topicList
topicList -c
producer -b BROKER
brokerConsumeStats -b BROKER
brokerConsumeStats -b BROKER -l 4
consumerStatus -g billing -i 127.0.0.1@billing-LABEL
""".strip().splitlines()
REFUSED_LOOKS = """
topicRoute -t nowhere
topicStatus -t nowhere
topicClusterList -t nowhere
consumerProgress -g nobody
consumerStatus -g archive
consumerConnection -g archive
producerConnection -g nobody -t orders
queryMsgByKey -t orders -k nothing
queryMsgById -t orders -i 7F00000100002A9F00000000000F4240
queryMsgByUniqueKey -t orders -i 00000000000000000000000000000001
queryMsgTraceById -i 00000000000000000000000000000001
cloneGroupOffset -s archive -d nobody -t audit
resetOffsetByTime -g nobody -t nowhere -s 0
updateTopic -b BROKER -t TBW102
updateTopic -b BROKER -t no+such+name
updateTopic -b BROKER -t badly-described -a +no.such.attribute=1
""".strip().splitlines()


@pytest.mark.parametrize("command", LOOKS)
def test_it_prints_the_same(both: TwoClusters, command: str) -> None:
    facts = both.look(*command.split())
    assert not facts.errors, facts.errors


@pytest.mark.parametrize("command", UNORDERED_LOOKS)
def test_it_prints_the_same_in_some_order(both: TwoClusters, command: str) -> None:
    facts = both.look(*command.split(), ordered=False)
    assert facts.lines
    assert not facts.errors, facts.errors


@pytest.mark.parametrize("command", REFUSED_LOOKS)
def test_it_is_refused_in_the_same_way(both: TwoClusters, command: str) -> None:
    assert both.look(*command.split()).errors


def test_the_groups_are_listed_with_their_lag(both: TwoClusters) -> None:
    rate = r"\d+(?= \d+$)"
    facts = both.look("consumerProgress", blank=rate, ordered=False)
    assert "archive 0 OFFLINE BLANK 5" in facts.lines
    assert "billing 1 V5_5_0 PUSH CLUSTERING BLANK 0" in facts.lines


@pytest.mark.parametrize("more", [[], ["-t", "orders"]])
def test_statistics_have_the_same_rows(both: TwoClusters, more: list[str]) -> None:
    # Apache counts the last day only from the first sample on, ten minutes after the start.
    counted = r"\d+ (?:\d+|NO_CONSUMER)$"
    facts = both.look("statsAll", *more, blank=counted, ordered=False)
    assert "orders billing 0 FRACTION FRACTION BLANK" in facts.lines


# Apache sizes thread pools and times its puts; sizes hang on the digits of the trace message.
OF_THE_MACHINE = re.compile(
    r"\w+Capacity|\w+Tps|\w+EntireTimeMax|putLatency\w+|putMessage(DistributeTime|SizeTotal|AverageSize)"
    r"|\w+Time[sS]tamp|runtime|commitLogMaxOffset|\w+DiskRatio\S*"
    r"|\w+QueueHeadWaitTimeMills|\w+QueueSize|pageCacheLockTimeMills|remain\w+|dispatchBehindBytes|timerReadBehind"
)


def test_the_runtime_table_has_the_same_keys_and_totals(both: TwoClusters) -> None:
    mine, apaches = both.tables("brokerStatus", "-b", "BROKER")
    assert mine.keys() == apaches.keys()
    for key, value in apaches.items():
        if not OF_THE_MACHINE.fullmatch(key):
            assert mine[key] == value, key


# What a test sets for one of them, what is the machine's.
OWN_SETTINGS = {
    "brokerIP2",
    "haListenPort",
    "listenPort",
    "namesrvAddr",
    "diskMaxUsedSpaceRatio",
    "osPageCacheBusyTimeOutMills",
    "waitTimeMillsInSendQueue",
}


# What Apache's broker does not have.
OURS_ALONE = set(keys_of(BrokerSettings, StoreFileSettings)) - JAVA_KEYS


def test_settings_have_the_same_names_and_values(both: TwoClusters) -> None:
    mine, apaches = both.tables("getBrokerConfig", "-b", "BROKER")
    # Settings of what is not built are not listed.
    mine = {key: value for key, value in mine.items() if key not in OURS_ALONE}
    assert mine.keys() <= apaches.keys()
    assert {"brokerName", "flushDiskType", "messageDelayLevel", "fileReservedTime"} <= mine.keys()
    for key in mine.keys() - OWN_SETTINGS:
        assert mine[key] == apaches[key], key
    by_cluster, _ = both.tables("getBrokerConfig", "-c", "DefaultCluster")
    assert by_cluster.keys() == mine.keys() | OURS_ALONE


def test_messages_are_found_by_their_ids(both: TwoClusters) -> None:
    keyed = both.run(MINE, "queryMsgByKey", "-t", "orders", "-k", "key-7").output
    unique = keyed.splitlines()[1].split()[0]
    facts = both.look("queryMsgByUniqueKey", "-t", "orders", "-i", unique)
    assert "Keys: [key-7 shared]" in facts.lines
    assert "Properties: {" in " ".join(facts.lines)
    both.look(
        "queryMsgByUniqueKey",
        "-t",
        "orders",
        "-i",
        unique,
        "-g",
        "billing",
        "-d",
        "127.0.0.1@billing-LABEL",
    )
    shown = [
        both.run(
            x, "queryMsgByOffset", *["-t", "orders", "-b", "broker-a", "-i", "1", "-o", "3"]
        ).output
        for x in both.clusters
    ]
    ids = [re.findall(r"OffsetID: +(\S+)", text)[0] for text in shown]
    printed = [
        both.run(x, "queryMsgById", "-t", "orders", "-i", one)
        for x, one in zip(both.clusters, ids, strict=True)
    ]
    assert all("key-13 shared" in one.output for one in printed)


def test_a_trace_is_found(both: TwoClusters) -> None:
    keyed = both.run(MINE, "queryMsgByKey", "-t", "audit", "-k", "key-50").output
    unique = keyed.splitlines()[1].split()[0]
    facts = both.look("queryMsgTraceById", "-i", unique, blank=r"\d+ms")
    assert any(line.startswith("Pub traced-shop") for line in facts.lines), facts


def test_topics_are_made_changed_and_deleted(both: TwoClusters, tmp_path: Path) -> None:
    both.do(
        "updateTopic",
        "-b",
        "BROKER",
        "-t",
        "made",
        "-r",
        "3",
        "-w",
        "5",
        "-a",
        "+message.type=FIFO",
    )
    both.look_until('"writeQueueNums":5', "topicRoute", "-t", "made")
    both.do("updateTopic", "-c", "DefaultCluster", "-t", "made", "-r", "6", "-w", "6", "-o", "true")
    both.look_until('"readQueueNums":6', "topicRoute", "-t", "made")
    assert "broker-a:6" in both.do("updateOrderConf", "-t", "made", "-m", "get")
    both.do("updateOrderConf", "-t", "made", "-m", "put", "-v", "broker-a:2")
    both.do("updateOrderConf", "-t", "made", "-m", "delete")
    assert both.look("updateOrderConf", "-t", "made", "-m", "get").errors
    for target in (["-b", "BROKER", "-p", "4"], ["-c", "DefaultCluster", "-p", "2"]):
        both.do("updateTopicPerm", "-t", "made", *target)
        both.look_until(f'"perm":{target[-1]}', "topicRoute", "-t", "made")
    assert "new perm equals" in both.do("updateTopicPerm", "-t", "made", "-b", "BROKER", "-p", "2")
    listed = tmp_path / "topics.json"
    topics = [{"topicName": name, "readQueueNums": 2, "writeQueueNums": 2} for name in ("l1", "l2")]
    listed.write_text(json.dumps(topics), encoding="ascii")
    both.do("updateTopicList", "-b", "BROKER", "-f", str(listed))
    both.look_until('"writeQueueNums":2', "topicRoute", "-t", "l2")
    both.look("topicStatus", "-t", "l1")
    for topic in ("made", "l1", "l2"):
        both.do("deleteTopic", "-c", "DefaultCluster", "-t", topic)
        assert both.look("topicRoute", "-t", topic).errors
    assert "made" not in both.look("topicList", ordered=False).lines


def test_groups_are_made_changed_and_deleted(both: TwoClusters, tmp_path: Path) -> None:
    both.do(
        "updateSubGroup",
        "-b",
        "BROKER",
        "-g",
        "club",
        "-r",
        "3",
        "-q",
        "2",
        "-m",
        "false",
        "-o",
        "true",
    )
    both.do(
        "updateSubGroup", "-c", "DefaultCluster", "-g", "club", "-s", "false", "-i", "0", "-w", "7"
    )
    assert "consumeEnable = false" in both.look("getConsumerConfig", "-g", "club").lines
    listed = tmp_path / "groups.json"
    listed.write_text(
        json.dumps([{"groupName": "g1", "retryMaxTimes": 5}, {"groupName": "g2"}]), encoding="ascii"
    )
    both.do("updateSubGroupList", "-b", "BROKER", "-f", str(listed))
    assert "retryMaxTimes = 5" in both.look("getConsumerConfig", "-g", "g1").lines
    both.do("setConsumeMode", "-b", "BROKER", "-t", "orders", "-g", "club", "-m", "POP", "-q", "2")
    both.do("setConsumeMode", "-c", "DefaultCluster", "-t", "orders", "-g", "club", "-m", "PULL")
    both.do("deleteSubGroup", "-b", "BROKER", "-g", "club", "-r", "true")
    both.do("deleteSubGroup", "-b", "BROKER", "-g", "g1", "-r", "true")
    both.do("deleteSubGroup", "-c", "DefaultCluster", "-g", "g2", "-r", "true")
    for group in ("club", "g1", "g2"):
        assert not both.look("getConsumerConfig", "-g", group).lines


def test_offsets_are_reset_skipped_and_cloned(both: TwoClusters) -> None:
    both.do("updateSubGroup", "-b", "BROKER", "-g", "copy")
    both.do("cloneGroupOffset", "-s", "archive", "-d", "copy", "-t", "audit")
    stats = "\n".join(both.look("brokerConsumeStats", "-b", "BROKER", ordered=False).lines)
    assert "audit copy broker-a 0 6 3 3" in stats
    assert both.do("resetOffsetByTime", "-g", "archive", "-t", "audit", "-s", "0")
    both.look_until("Consume Diff Total: 11", "consumerProgress", "-g", "archive")
    both.do(
        "resetOffsetByTime",
        *["-g", "archive", "-t", "audit", "-s", "0", "-b", "BROKER", "-q", "1", "-o", "2"],
    )
    both.look_until("Consume Diff Total: 9", "consumerProgress", "-g", "archive")
    both.do("skipAccumulatedMessage", "-g", "archive", "-t", "audit")
    both.look_until("Consume Diff Total: 0", "consumerProgress", "-g", "archive")
    for moment in ("0", "now"):  # the group is online: its client is told
        both.do("resetOffsetByTime", "-g", "billing", "-t", "orders", "-s", moment)
        both.look_until("Consume Diff Total: 0", "consumerProgress", "-g", "billing")
    both.do("skipAccumulatedMessage", "-g", "billing", "-t", "orders")


def test_messages_are_sent_and_timed(both: TwoClusters) -> None:
    both.do("updateTopic", "-b", "BROKER", "-t", "sent", "-r", "2", "-w", "2")
    both.look_until('"writeQueueNums":2', "topicRoute", "-t", "sent")
    sent = both.do(
        "sendMessage",
        *["-t", "sent", "-p", "hello", "-k", "word", "-c", "tag", "-b", "broker-a", "-i", "1"],
        blank=MESSAGE_ID,
    )
    assert "broker-a 1 SEND_OK" in sent
    both.do(
        "sendMsgStatus",
        *["-b", "broker-a", "-c", "3", "-s", "100"],
        blank=f"{MESSAGE_ID}|{ROUND_TRIP}",
    )
    both.do("checkMsgSendRT", "-t", "sent", "-a", "5", blank=ROUND_TRIP)
    both.look(
        "printMsgByQueue",
        *["-t", "sent", "-a", "broker-a", "-i", "1", "-p", "true", "-d", "true"],
        blank=rf"{MESSAGE_ID}|commitLogOffset=\d+",
    )
    assert "broker-a 1 0 3 DATE" in both.look("topicStatus", "-t", "sent").lines


def test_a_broker_is_tidied_and_configured(both: TwoClusters) -> None:
    for command in ("cleanExpiredCQ", "cleanUnusedTopic", "deleteExpiredCommitLog"):
        assert "success" in both.do(command, "-b", "BROKER")
        assert "success" in both.do(command, "-c", "DefaultCluster")
    both.do("updateBrokerConfig", "-b", "BROKER", "-k", "fileReservedTime", "-v", "48")
    both.do("updateBrokerConfig", "-c", "DefaultCluster", "-k", "maxMessageSize", "-v", "65536")
    for table in both.tables("getBrokerConfig", "-b", "BROKER"):
        assert (table["fileReservedTime"], table["maxMessageSize"]) == ("48", "65536")
    both.do("wipeWritePerm", "-b", "broker-a")
    both.look_until('"perm":4', "topicRoute", "-t", "orders")
    both.do("addWritePerm", "-b", "broker-a")
    both.look_until('"perm":6', "topicRoute", "-t", "orders")


REFUSED_HERE = {
    "updateBrokerConfig -b BROKER -k noSuchKey -v 1": "no such setting: noSuchKey",
    "updateBrokerConfig -b BROKER -k flushDiskType -v NO": "must be ASYNC_FLUSH or SYNC_FLUSH",
    "queryCq -t orders -q 1 -i 200 -c 3": "Index 200 of 1@orders is not exist",
    "updateStaticTopic -c DefaultCluster -t fixed -qn 4": "static topics are not built",
    "getColdDataFlowCtrInfo -b BROKER": "cold data flow control is not built",
    "createUser -b BROKER -u somebody -p secret": "authentication and ACL 2.0 are not built",
}


@pytest.mark.skipif(wants_apache(), reason="Apache takes them, or fails otherwise")
@pytest.mark.parametrize("command", REFUSED_HERE)
def test_what_is_refused_here_says_why(both: TwoClusters, command: str) -> None:
    assert REFUSED_HERE[command] in both.run(MINE, *command.split()).errors
