"""The commands of `downrange` on a cluster of ours: exact output, exit codes, what is changed."""

import logging
import re
import socket
import time
from pathlib import Path

import pytest
from command_line import CommandLine, Json
from dead_letter import refuse_one
from processes import Server, free_port

SECONDS_MAX = 60.0


def masked(value: Json, *names: str) -> Json:
    """The value without what differs from run to run."""
    if isinstance(value, list):
        return [masked(one, *names) for one in value]
    if isinstance(value, dict):
        return {key: "…" if key in names else masked(one, *names) for key, one in value.items()}
    return value


def test_topics_are_made_shown_and_deleted(
    cli: CommandLine, servers: tuple[Server, Server]
) -> None:
    made = {
        "topic": "t1", "broker": "b1", "action": "would be created",
        "read_queues": 2, "write_queues": 2, "permission": "RW-",
    }  # fmt: skip
    words = ("topic", "create", "t1", "-q", "2")
    assert cli.rows(*words, "--dry-run") == [made]
    assert cli.run("topic", "show", "t1").code == 3
    assert cli.rows(*words) == [{**made, "action": "created"}]
    assert cli.rows(*words) == [{**made, "action": "changed"}]
    assert {"topic": "t1", "kind": "normal"} in cli.rows("topic", "list")
    assert all(row["kind"] == "normal" for row in cli.rows("topic", "list"))
    assert {"b1", "DefaultCluster"}.isdisjoint(
        str(row["topic"]) for row in cli.rows("topic", "list")
    )
    assert {"topic": "TBW102", "kind": "system"} in cli.rows("topic", "list", "--all")
    assert cli.json("topic", "show", "t1") == {
        "topic": "t1",
        "kind": "normal",
        "groups": [],
        "brokers": [
            {
                "broker": "b1",
                "read_queues": 2,
                "write_queues": 2,
                "permission": "RW-",
                "order": False,
                "attributes": {},
            }
        ],
    }
    assert cli.json("topic", "route", "t1") == [
        {
            "cluster": "DefaultCluster",
            "broker": "b1",
            "id": 0,
            "address": servers[1].address,
            "read_queues": 2,
            "write_queues": 2,
            "permission": "RW-",
        }
    ]
    gone = {"topic": "t1", "action": "would be deleted", "messages": 0, "brokers": ["b1"]}
    assert cli.json("topic", "delete", "t1", "--dry-run") == gone
    refused = cli.run("topic", "delete", "t1", stdin="n\n")
    assert (refused.code, "nothing was changed" in refused.err) == (1, True)
    assert cli.json("topic", "delete", "t1", "--yes") == {**gone, "action": "deleted"}
    missing = cli.run("topic", "show", "t1")
    assert missing.code == 3
    assert missing.err.startswith("downrange: topic 't1' does not exist")


def test_messages_go_in_and_come_out(cli: CommandLine, servers: tuple[Server, Server]) -> None:
    cli.do("topic", "create", "t2", "-q", "2")
    lines = "".join(f"k{n}|body {n}\n" for n in range(5))
    sent = cli.do("produce", "t2", "-K", "|", "-g", "new", "-p", "a=b", stdin=lines + "\n\n")
    assert (sent.out, sent.err) == ("", "5 messages sent to t2\n")
    stats = cli.rows("topic", "stats", "t2")
    assert [(row["broker"], row["queue"]) for row in stats] == [("b1", 0), ("b1", 1)]
    assert sum(int(str(row["messages"])) for row in stats) == 5
    shown = cli.do("consume", "t2", "-e", "-f", "%k=%b,%g,%p\\n").out
    assert sorted(shown.splitlines()) == [f"k{n}=body {n},new,a=b" for n in range(5)]
    assert cli.do("consume", "t2", "-c", "2").out.count("\n") == 2
    assert cli.do("tail", "t2", "-e", "-l", "1").out == "body 4\n"
    rows = cli.rows("consume", "t2", "-e")
    first = min(rows, key=lambda row: str(row["keys"]))
    varying = ("message_id", "offset_message_id", "born_ms", "stored_ms", "born_host", "queue",
               "offset")  # fmt: skip
    assert masked(first, *varying) == {
        "topic": "t2", "broker": "b1", "queue": "…", "offset": "…", "message_id": "…",
        "offset_message_id": "…", "tag": "new", "keys": ["k0"], "properties": {"a": "b"},
        "born_ms": "…", "stored_ms": "…", "born_host": "…", "store_host": servers[1].address,
        "reconsume_times": 0, "bytes": 6, "body": "body 0",
    }  # fmt: skip
    for words in (
        (str(first["message_id"]), "-t", "t2"),
        (str(first["offset_message_id"]),),
        ("--key", "k0", "-t", "t2"),
        ("-q", str(first["queue"]), "--offset", str(first["offset"]), "-t", "t2"),
        ("--at", str(first["stored_ms"]), "-q", str(first["queue"]), "-t", "t2", "-c", "1"),
    ):
        (found,) = cli.rows("message", "show", *words)
        assert masked(found, "broker") == masked(first, "broker"), words
    assert cli.run("message", "show", "--key", "nix", "-t", "t2").code == 3
    assert cli.run("message", "show").code == 2
    one = cli.do("message", "show", "--key", "k0", "-t", "t2").out
    assert re.search(r"^tag +new$", one, re.MULTILINE)


def test_what_is_printed_can_be_sent_again(cli: CommandLine) -> None:
    cli.do("topic", "create", "t3")
    cli.do("topic", "create", "t4")
    line = '{"body":"x","keys":["a","b"],"tag":"t","properties":{"p":"q"}}\n'
    binary = '{"body_base64":"/wA="}\n'
    receipts = cli.rows("produce", "t3", "--json", stdin=line + binary)
    assert [row["status"] for row in receipts] == ["SEND_OK", "SEND_OK"]
    printed = cli.do("consume", "t3", "-e", "-o", "jsonl").out
    cli.do("produce", "t4", "--json", stdin=printed)
    wanted = ("body", "body_base64", "keys", "tag", "properties")
    again = [{key: row.get(key) for key in wanted} for row in cli.rows("consume", "t4", "-e")]
    assert sorted(again, key=str) == sorted(
        [
            {"body": "x", "body_base64": None, "keys": ["a", "b"], "tag": "t",
             "properties": {"p": "q"}},
            {"body": None, "body_base64": "/wA=", "keys": [], "tag": None, "properties": {}},
        ],
        key=str,
    )  # fmt: skip
    bad = cli.run("produce", "t3", "--json", stdin="{}\n")
    assert (bad.code, bad.err) == (
        2, "downrange: a line needs body or body_base64, and not both\n",
    )  # fmt: skip
    assert cli.run("produce", "t3", "--json", stdin="nix\n").code == 2


def test_pieces_of_input(cli: CommandLine) -> None:
    cli.do("topic", "create", "t5", "-q", "1")
    cli.do("produce", "t5", "--queue", "0", "-D", "\\0", stdin=b"a\nb\0c\0\0d")
    cli.do("produce", "t5", "--queue", "0", "--whole", stdin="1\n2\n")
    assert cli.do("consume", "t5", "-e", "-f", "[%b]").out == "[a\nb][c][d][1\n2\n]"
    assert cli.do("produce", "t5", "--dry-run", stdin="1\n2\n").err == (
        "2 messages would be sent to t5\n"
    )
    assert cli.do("consume", "t5", "-e", "--from", "2", "-f", "%o ").out == "2 3 "
    assert cli.do("consume", "t5", "-e", "--from", "-1", "-f", "%o ").out == "3 "
    assert cli.do("consume", "t5", "-e", "--from", "end").out == ""
    assert cli.do("consume", "t5", "-e", "--from", "1h", "-f", "%o ").out == "0 1 2 3 "


def test_a_group_consumes_lags_and_is_moved(cli: CommandLine) -> None:
    cli.do("topic", "create", "t6", "-q", "1")
    cli.do("produce", "t6", "-q", "0", stdin="".join(f"{n}\n" for n in range(10)))
    made = cli.rows("group", "create", "g6", "--retries", "3")
    assert made == [
        {"group": "g6", "broker": "b1", "action": "created", "may_consume": True,
         "retry_max_times": 3},
    ]  # fmt: skip
    assert cli.do("consume", "t6", "-g", "g6", "-c", "4").out == "0\n1\n2\n3\n"
    shown = {"broker": "b1", "queue": 0, "min_offset": 0, "max_offset": 10}
    assert cli.rows("offset", "show", "g6", "t6") == [{**shown, "consumer_offset": 4, "lag": 6}]
    lag: list[Json] = [row for row in cli.rows("group", "lag", "g6") if row["topic"] == "t6"]
    assert masked(lag, "consumed_until_ms") == [
        {"topic": "t6", "broker": "b1", "queue": 0, "broker_offset": 10, "consumer_offset": 4,
         "lag": 6, "consumed_until_ms": "…"},
    ]  # fmt: skip
    plan = {
        "group": "g6",
        "topic": "t6",
        "action": "would be reset",
        "skipped": 0,
        "repeated": 3,
        "queues": [{**shown, "now": 4, "then": 1, "skipped": 0, "repeated": 3}],
    }
    words = ("offset", "reset", "g6", "t6")
    assert cli.json(*words, "--shift", "-3", "--dry-run") == plan
    asked = cli.run(*words, "--shift", "-3", stdin="n\n")
    assert asked.code == 1
    assert "0 messages are skipped, 3 come again" in asked.err
    assert "repeated" in asked.out
    assert cli.json(*words, "--shift", "-3", "-y") == {**plan, "action": "reset"}
    assert cli.do("consume", "t6", "-g", "g6", "-c", "1").out == "1\n"
    assert cli.do(*words, "--to", "end", stdin="y\n").err.endswith("done\n")
    assert cli.rows("offset", "show", "g6", "t6") == [{**shown, "consumer_offset": 10, "lag": 0}]
    assert cli.run(*words, "--to", "yesterday", "-y").code == 2
    assert cli.run(*words, "-y").code == 2
    assert cli.run("offset", "reset", "nix", "t6", "--to", "end", "-y").code == 3
    cloned = cli.json("offset", "clone", "g6", "h6", "t6")
    assert cloned == {
        "from": "g6", "to": "h6", "topic": "t6", "action": "cloned",
        "queues": [{"broker": "b1", "queue": 0, "now": None, "then": 10}],
    }  # fmt: skip
    assert cli.rows("offset", "show", "h6", "t6") == [{**shown, "consumer_offset": 10, "lag": 0}]


def test_groups_are_shown_and_deleted(cli: CommandLine) -> None:
    cli.do("group", "create", "g7", "--no-consume")
    rows = cli.rows("group", "list")
    mine = {"group": "g7", "brokers": ["b1"], "may_consume": False, "retry_max_times": 16}
    assert mine in rows
    assert cli.json("group", "show", "g7") == {
        "group": "g7",
        "online": False,
        "consume_type": None,
        "message_model": None,
        "lag": 0,
        "consume_tps": 0.0,
        "brokers": [
            {"broker": "b1", "may_consume": False, "broadcast": True, "orderly": False,
             "retry_max_times": 16, "retry_queues": 1},
        ],
        "topics": [],
        "clients": [],
    }  # fmt: skip
    cli.do("group", "create", "g7", "--consume")
    assert {**mine, "may_consume": True} in cli.rows("group", "list")
    assert cli.json("group", "connections", "g7") == {
        "group": "g7", "online": False, "consume_type": None, "message_model": None,
        "consume_from_where": None, "clients": [], "subscriptions": [],
    }  # fmt: skip
    gone = {"group": "g7", "action": "deleted", "brokers": ["b1"], "topics": [],
            "clients_online": 0}  # fmt: skip
    assert cli.json("group", "delete", "g7", "-y") == gone
    for command in ("show", "lag", "connections"):
        assert cli.run("group", command, "g7").code == 3, command
    assert cli.run("group", "delete", "g7", "-y").code == 3


def test_settings_of_a_broker(cli: CommandLine, servers: tuple[Server, Server]) -> None:
    (row,) = cli.rows("cluster", "show")
    assert masked(row, "put_tps", "get_tps", "disk_ratio", "uptime_s") == {
        "cluster": "DefaultCluster", "broker": "b1", "id": 0, "address": servers[1].address,
        "state": "master", "version": "V5_5_0", "put_tps": "…", "get_tps": "…",
        "disk_ratio": "…", "uptime_s": "…",
    }  # fmt: skip
    facts = cli.json("broker", "show", "b1")
    assert isinstance(facts, dict)
    assert facts["brokerVersionDesc"] == "V5_5_0"
    assert cli.rows("broker", "config", "get", "b1", "fileReservedTime") == [
        {"key": "fileReservedTime", "value": "72"}
    ]
    change = {"key": "fileReservedTime", "before": "72", "value": "48", "action": "would be set"}
    words = ("broker", "config", "set", "b1", "fileReservedTime=48")
    assert cli.rows(*words, "--dry-run") == [change]
    assert cli.rows(*words) == [{**change, "action": "set"}]
    assert cli.rows(*words)[0]["before"] == "48"
    assert cli.run("broker", "config", "set", "b1", "nonsense=1").code == 3
    assert cli.run("broker", "config", "set", "b1", "nonsense").code == 2
    assert cli.run("broker", "show", "nix").code == 3


def test_the_log_of_a_command_is_its_own(
    cli: CommandLine, caplog: pytest.LogCaptureFixture
) -> None:
    quiet = cli.do("topic", "list")
    assert quiet.err == ""
    assert "client started" in cli.do("topic", "list", "-v").err
    assert caplog.text == ""
    logging.getLogger("downrange.nix").warning("as before")
    assert "as before" in caplog.text


def test_bench_prints_its_phases(cli: CommandLine) -> None:
    cli.do("topic", "create", "t8")
    rows = cli.rows("bench", "t8", "-c", "200", "-s", "10", "-i", "8")
    assert [(row["phase"], row["messages"], row["bytes"]) for row in rows] == [
        ("send", 200, 2000), ("read", 200, 2000),
    ]  # fmt: skip
    table = cli.do("bench", "t8", "-c", "10", "--no-read").out
    assert table.split()[:3] == ["PHASE", "MESSAGES", "SECONDS"]


def test_the_doctor_ends_with_5_if_it_finds_something(cli: CommandLine) -> None:
    found = cli.run("doctor", "-t", "nix", "-o", "jsonl")
    assert found.code == 5
    (finding,) = [row for row in found.rows if row["check"] == "route"]
    assert finding["severity"] == "warning"
    assert finding["subject"] == "nix"
    assert "looked at: name servers 1, brokers 1, topics 1" in found.err
    nobody = cli.run("doctor", "-n", f"127.0.0.1:{free_port()}")
    assert nobody.code == 5
    assert "does not answer" in nobody.out
    assert "check host and port" in nobody.out


def test_nobody_answers(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        address = f"127.0.0.1:{silent.getsockname()[1]}"
        done = CommandLine(address, tmp_path).run("topic", "list", "--timeout", "0.2")
    assert done.code == 4
    assert "none of 1 name servers answers" in done.err
    assert "Traceback" not in done.err
    wrong = CommandLine("nix", tmp_path).run("topic", "list")
    assert wrong.code == 2
    assert "(from $DOWNRANGE_NAME_SERVERS)" in wrong.err


def test_dead_letters(cli: CommandLine) -> None:
    assert cli.run("dlq", "show", "g9").code == 3
    assert cli.run("dlq", "resend", "g9", "-y").code == 3
    cli.do("topic", "create", "%DLQ%g9", "-q", "1")
    assert cli.rows("dlq", "list") == []
    cli.do("topic", "create", "t9", "-q", "1")
    cli.do("group", "create", "g9")
    cli.do("topic", "create", "%RETRY%g9", "-q", "1")
    cli.do("produce", "%DLQ%g9", "-q", "0", stdin="bad\n")
    (row,) = cli.rows("dlq", "list")
    assert masked(row, "newest_ms") == {
        "group": "g9", "topic": "%DLQ%g9", "messages": 1, "newest_ms": "…",
    }  # fmt: skip
    (letter,) = cli.rows("dlq", "show", "g9")
    assert (letter["body"], letter["origin_topic"]) == ("bad", None)
    lost = cli.run("dlq", "resend", "g9", "-y")
    assert lost.code == 3
    assert "does not say which topic it came from" in lost.err


def test_a_dead_letter_comes_again(cli: CommandLine) -> None:
    cli.do("topic", "create", "t10", "-q", "1")
    cli.do("produce", "t10", "-q", "0", "-k", "key", stdin="bad\n")
    refuse_one(cli.name_server, "t10", "g10")
    deadline = time.monotonic() + SECONDS_MAX
    while not [row for row in cli.rows("dlq", "list") if row["group"] == "g10"]:
        assert time.monotonic() < deadline
        time.sleep(0.2)
    (letter,) = cli.rows("dlq", "show", "g10")
    assert (letter["body"], letter["origin_topic"]) == ("bad", "t10")
    would = {"message_id": letter["message_id"], "origin_topic": "t10", "sent_to": "%RETRY%g10",
             "action": "would be sent"}  # fmt: skip
    assert cli.rows("dlq", "resend", "g10", "--dry-run") == [would]
    assert cli.run("dlq", "resend", "g10", "--id", "nix", "-y").code == 3
    words = ("dlq", "resend", "g10", "--id", str(letter["message_id"]), "-y")
    assert cli.rows(*words) == [{**would, "action": "sent"}]
    (again,) = cli.rows("consume", "t10", "-g", "g10", "-c", "1")
    assert (again["topic"], again["body"], again["keys"]) == ("t10", "bad", ["key"])
