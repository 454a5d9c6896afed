"""The commands of `downrange` on Apache RocketMQ 5.5.0 and on ours: the same words, the same rows.

Each test runs on both; what differs between them (addresses, ids, times) is not compared.
"""

import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from command_line import CommandLine, Json
from dead_letter import refuse_one
from interop.client_cluster import BROKER_NAME, ClientCluster, running_cluster

pytestmark = pytest.mark.interop

WAIT_SECONDS_MAX = 60.0
POLL_SECONDS = 0.3


@pytest.fixture(scope="module", params=[False, True], ids=["ours", "apaches"])
def cluster(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[ClientCluster]:
    with running_cluster(tmp_path_factory.mktemp("cli"), of_apache=request.param) as running:
        yield running


@pytest.fixture
def cli(cluster: ClientCluster, tmp_path: Path) -> CommandLine:
    return CommandLine(cluster.name_server, tmp_path)


def until(look: Callable[[], Json], wanted: Callable[[Json], bool]) -> Json:
    """What a command shows as soon as it is what is wanted: brokers tell name servers later."""
    deadline = time.monotonic() + WAIT_SECONDS_MAX
    while not wanted(found := look()):
        assert time.monotonic() < deadline, found
        time.sleep(POLL_SECONDS)
    return found


def test_topics(cli: CommandLine, cluster: ClientCluster) -> None:
    made = {
        "topic": "CliTopic", "broker": BROKER_NAME, "action": "created",
        "read_queues": 3, "write_queues": 3, "permission": "RW-",
    }  # fmt: skip
    words = ("topic", "create", "CliTopic", "-q", "3", "--attribute", "+message.type=NORMAL")
    assert cli.rows(*words, "--dry-run") == [{**made, "action": "would be created"}]
    assert cli.rows(*words) == [made]
    assert {"topic": "CliTopic", "kind": "normal"} in cli.rows("topic", "list")
    assert cli.json("topic", "show", "CliTopic") == {
        "topic": "CliTopic",
        "kind": "normal",
        "groups": [],
        "brokers": [
            {"broker": BROKER_NAME, "read_queues": 3, "write_queues": 3, "permission": "RW-",
             "order": False, "attributes": {"message.type": "NORMAL"}},
        ],
    }  # fmt: skip
    assert cli.json("topic", "route", "CliTopic") == [
        {"cluster": "DefaultCluster", "broker": BROKER_NAME, "id": 0, "address": cluster.broker,
         "read_queues": 3, "write_queues": 3, "permission": "RW-"},
    ]  # fmt: skip
    assert [row["messages"] for row in cli.rows("topic", "stats", "CliTopic")] == [0, 0, 0]
    gone = cli.json("topic", "delete", "CliTopic", "-y")
    assert gone == {
        "topic": "CliTopic", "action": "deleted", "messages": 0, "brokers": [BROKER_NAME],
    }  # fmt: skip
    assert cli.run("topic", "show", "CliTopic").code == 3


def test_messages(cli: CommandLine) -> None:
    cli.do("topic", "create", "CliMessages", "-q", "2")
    lines = "".join(f"k{n}|body {n}\n" for n in range(6))
    receipts = cli.rows("produce", "CliMessages", "-K", "|", "-g", "new", "-p", "a=b", stdin=lines)
    assert {row["status"] for row in receipts} == {"SEND_OK"}
    shown = cli.do("consume", "CliMessages", "-e", "-f", "%k=%b,%g,%p\\n").out
    assert sorted(shown.splitlines()) == [f"k{n}=body {n},new,a=b" for n in range(6)]
    assert cli.do("consume", "CliMessages", "-e", "--tags", "old").out == ""
    chosen = cli.do("consume", "CliMessages", "-e", "--sql", "a = 'b'", "-f", "%k ").out
    assert len(chosen.split()) == 6
    # Those were under way together, and a broker with many threads stores them in any order.
    cli.do("produce", "CliMessages", "-k", "z", stdin="last\n")
    assert cli.do("tail", "CliMessages", "-e", "-l", "1").out == "last\n"
    rows = cli.rows("consume", "CliMessages", "-e")
    first = min(rows, key=lambda row: str(row["keys"]))

    def found(*words: str) -> Json:
        done = cli.run("message", "show", *words, "-o", "jsonl")
        return [{**row, "broker": BROKER_NAME} for row in done.rows]

    for words in (
        (str(first["message_id"]), "-t", "CliMessages"),
        (str(first["offset_message_id"]),),
        ("--key", "k0", "-t", "CliMessages"),
        ("-q", str(first["queue"]), "--offset", str(first["offset"]), "-t", "CliMessages"),
    ):
        # Apache builds its index a moment after the message is there.
        until(lambda words=words: found(*words), lambda rows: rows == [first])  # type: ignore[misc]
    at = ("--at", str(first["stored_ms"]), "-t", "CliMessages", "-c", "1")
    assert len(cli.rows("message", "show", *at)) == 1
    assert cli.run("message", "show", "--key", "nix", "-t", "CliMessages").code == 3


def test_groups_and_offsets(cli: CommandLine) -> None:
    cli.do("topic", "create", "CliOffsets", "-q", "1")
    cli.do("produce", "CliOffsets", "-q", "0", stdin="".join(f"{n}\n" for n in range(10)))
    assert cli.rows("group", "create", "CliGroup", "--retries", "3") == [
        {"group": "CliGroup", "broker": BROKER_NAME, "action": "created", "may_consume": True,
         "retry_max_times": 3},
    ]  # fmt: skip
    assert {
        "group": "CliGroup", "brokers": [BROKER_NAME], "may_consume": True, "retry_max_times": 3,
    } in cli.rows("group", "list")  # fmt: skip
    assert cli.do("consume", "CliOffsets", "-g", "CliGroup", "-c", "4").out == "0\n1\n2\n3\n"
    queue = {"broker": BROKER_NAME, "queue": 0, "min_offset": 0, "max_offset": 10}

    def offsets(group: str = "CliGroup") -> Json:
        return list(cli.rows("offset", "show", group, "CliOffsets"))

    until(offsets, lambda rows: rows == [{**queue, "consumer_offset": 4, "lag": 6}])
    lag = [row for row in cli.rows("group", "lag", "CliGroup") if row["topic"] == "CliOffsets"]
    assert [(row["broker_offset"], row["consumer_offset"], row["lag"]) for row in lag] == [
        (10, 4, 6)
    ]
    words = ("offset", "reset", "CliGroup", "CliOffsets")
    plan = {
        "group": "CliGroup", "topic": "CliOffsets", "action": "would be reset", "skipped": 0,
        "repeated": 3, "queues": [{**queue, "now": 4, "then": 1, "skipped": 0, "repeated": 3}],
    }  # fmt: skip
    assert cli.json(*words, "--shift", "-3", "--dry-run") == plan
    assert cli.json(*words, "--shift", "-3", "-y") == {**plan, "action": "reset"}
    assert offsets() == [{**queue, "consumer_offset": 1, "lag": 9}]
    assert cli.do("consume", "CliOffsets", "-g", "CliGroup", "-c", "1").out == "1\n"
    for place, then in (("end", 10), ("5", 5), ("1h", 0)):
        cli.do(*words, "--to", place, "-y")
        assert offsets() == [{**queue, "consumer_offset": then, "lag": 10 - then}], place
    cli.do("group", "create", "CliCopy")
    cli.do(*words, "--to", "7", "-y")
    cli.do("offset", "clone", "CliGroup", "CliCopy", "CliOffsets")
    assert offsets("CliCopy") == [{**queue, "consumer_offset": 7, "lag": 3}]
    shown = cli.json("group", "show", "CliGroup")
    assert isinstance(shown, dict)
    assert (shown["online"], shown["clients"]) == (False, [])
    assert cli.json("group", "connections", "CliGroup") == {
        "group": "CliGroup", "online": False, "consume_type": None, "message_model": None,
        "consume_from_where": None, "clients": [], "subscriptions": [],
    }  # fmt: skip
    for group in ("CliGroup", "CliCopy"):
        cli.do("group", "delete", group, "-y")
        assert cli.run("group", "show", group).code == 3


def test_a_group_that_is_online_is_moved(cli: CommandLine) -> None:
    cli.do("topic", "create", "CliOnline", "-q", "1")
    cli.do("produce", "CliOnline", "-q", "0", stdin="1\n2\n3\n")
    environment = {**os.environ, "DOWNRANGE_NAME_SERVERS": cli.name_server}
    words = ("consume", "CliOnline", "-g", "CliLive", "-f", "%o\\n", "-c", "5")
    with subprocess.Popen(
        [sys.executable, "-m", "downrange.app.cli", *words],
        stdout=subprocess.PIPE, text=True, env=environment,
    ) as member:  # fmt: skip
        try:
            until(
                lambda: list(cli.rows("offset", "show", "CliLive", "CliOnline")),
                lambda rows: (
                    isinstance(rows, list) and isinstance(rows[0], dict) and rows[0]["lag"] == 0
                ),
            )
            seen = cli.json("group", "connections", "CliLive")
            assert isinstance(seen, dict)
            assert (seen["online"], seen["consume_type"]) == (True, "CONSUME_PASSIVELY")
            moved = cli.json("offset", "reset", "CliLive", "CliOnline", "--shift", "-2", "-y")
            assert isinstance(moved, dict)
            assert moved["repeated"] == 2
            out, _ = member.communicate(timeout=WAIT_SECONDS_MAX)
        finally:
            member.kill()
    assert (member.returncode, out.split()) == (0, ["0", "1", "2", "1", "2"])


def test_dead_letters(cli: CommandLine) -> None:
    cli.do("topic", "create", "CliLetters", "-q", "1")
    cli.do("produce", "CliLetters", "-q", "0", "-k", "key", stdin="bad\n")
    refuse_one(cli.name_server, "CliLetters", "CliDead")
    rows = until(
        lambda: [row for row in cli.rows("dlq", "list") if row["group"] == "CliDead"],
        lambda rows: isinstance(rows, list) and len(rows) == 1,
    )
    assert isinstance(rows, list)
    assert isinstance(rows[0], dict)
    assert (rows[0]["topic"], rows[0]["messages"]) == ("%DLQ%CliDead", 1)
    (letter,) = cli.rows("dlq", "show", "CliDead")
    assert (letter["body"], letter["origin_topic"], letter["keys"]) == (
        "bad",
        "CliLetters",
        ["key"],
    )
    (sent,) = cli.rows("dlq", "resend", "CliDead", "-y")
    assert (sent["origin_topic"], sent["sent_to"]) == ("CliLetters", "%RETRY%CliDead")
    again = cli.rows("consume", "CliLetters", "-g", "CliDead", "-c", "1")
    assert [(row["topic"], row["body"], row["keys"]) for row in again] == [
        ("CliLetters", "bad", ["key"])
    ]
    (sent,) = cli.rows("dlq", "resend", "CliDead", "-y", "--to", "topic")
    assert sent["sent_to"] == "CliLetters"
    assert len(cli.rows("consume", "CliLetters", "-e")) == 2


def test_brokers(cli: CommandLine, cluster: ClientCluster) -> None:
    (row,) = cli.rows("cluster", "show")
    shown = {key: row[key] for key in ("cluster", "broker", "id", "address", "state", "version")}
    assert shown == {
        "cluster": "DefaultCluster", "broker": BROKER_NAME, "id": 0, "address": cluster.broker,
        "state": "master", "version": "V5_5_0",
    }  # fmt: skip
    assert isinstance(row["disk_ratio"], float)
    assert isinstance(row["uptime_s"], int)
    facts = cli.json("broker", "show", BROKER_NAME)
    assert isinstance(facts, dict)
    assert facts["brokerVersionDesc"] == "V5_5_0"
    words = ("broker", "config", "set", BROKER_NAME, "fileReservedTime=49")
    before = {"key": "fileReservedTime", "before": "72", "value": "49"}
    assert cli.rows(*words) == [{**before, "action": "set"}]
    assert cli.rows("broker", "config", "get", BROKER_NAME, "fileReservedTime") == [
        {"key": "fileReservedTime", "value": "49"}
    ]
    assert cli.run("broker", "config", "set", BROKER_NAME, "nonsense=1").code == 3


def test_the_doctor(cli: CommandLine) -> None:
    found = cli.run("doctor", "-o", "jsonl")
    assert found.code in {0, 5}
    # The disk of this machine and topics that other tests have just deleted are not meant.
    assert [row for row in found.rows if row["check"] not in {"disk", "route"}] == []
    missing = cli.run("doctor", "-t", "CliNix", "-o", "jsonl")
    (finding,) = [row for row in missing.rows if row["check"] == "route"]
    assert (finding["severity"], finding["subject"]) == ("warning", "CliNix")


def test_bench(cli: CommandLine) -> None:
    cli.do("topic", "create", "CliBench", "-q", "2")
    rows = cli.rows("bench", "CliBench", "-c", "500", "-s", "50")
    assert [(row["phase"], row["messages"]) for row in rows] == [("send", 500), ("read", 500)]


@pytest.mark.parametrize("of_apache", [False, True], ids=["ours", "apaches"])
def test_files_of_a_stopped_broker(tmp_path: Path, *, of_apache: bool) -> None:
    with running_cluster(tmp_path / "cluster", of_apache=of_apache) as running:
        cli = CommandLine(running.name_server, tmp_path)
        cli.do("topic", "create", "CliStore", "-q", "1")
        cli.do("produce", "CliStore", "-q", "0", "-k", "k", stdin="1\n2\n3\n")
        rows = cli.rows("consume", "CliStore", "-e")
    folder = running.folder / "broker"
    config = folder / ("server.conf" if of_apache else "broker.conf")
    words = (str(folder / "store"), "-c", str(config))
    facts = cli.json("store", "inspect", *words)
    assert isinstance(facts, dict)
    assert facts["stopped_cleanly"] is True
    assert isinstance(facts["queues"], list)
    assert {
        "topic": "CliStore", "queue": 0, "min_offset": 0, "max_offset": 3, "messages": 3,
    } in facts["queues"]  # fmt: skip
    report = cli.json("store", "verify", *words)
    assert isinstance(report, dict)
    assert (report["sound"], report["index_checked"], report["damages"]) == (True, True, [])
    dumped = cli.do("store", "dump", *words, "-t", "CliStore").rows
    assert [row["body"] for row in dumped] == ["1", "2", "3"]
    for row in (*dumped, *rows):
        row.pop("physical_offset", None)
        row.pop("broker")
    assert dumped == rows
