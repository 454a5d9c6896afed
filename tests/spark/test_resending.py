"""Replays, dead letters and traces in a local Spark."""

from datetime import UTC, datetime
from pathlib import Path

from pyspark.sql import SparkSession
from spark.pipeline_files import load, run_text
from spark.rocketmq_cluster import BROKER, RocketMQCluster

from downrange.client.message import Message
from downrange.client.trace import pub_line, sub_after_line, sub_before_line


def head(kind: str, cluster: RocketMQCluster) -> str:
    return f'kind = "{kind}"\nname = "again"\nname_servers = "{cluster.names.address}"\n'


def test_a_replay_sends_what_its_dry_run_says(
    spark: SparkSession, cluster: RocketMQCluster
) -> None:
    queues = cluster.create("played", 2)
    cluster.create("played-again", 2)
    for number in range(10):
        cluster.send_one(
            queues[number % 2],
            Message(
                "played",
                f"m{number}".encode(),
                tag="even" if number % 2 == 0 else "odd",
                keys=f"k{number}",
                properties={"own": str(number)},
            ),
        )
    text = (
        head("replay", cluster)
        + """
[source]
topics = ["played"]
since = 2020-01-01T00:00:00Z
where = "tags = 'even' AND queueOffset < 3"
[target]
topic = "played-again"
queues = "same"
rate = 1000
"""
    )
    said = run_text(spark, text, dry_run=True)
    assert said[0] == "would send 3 messages (6 bytes) of played to played-again"
    assert [line.split()[0] for line in said[1:]] == [f"played@{BROKER}@0@{at}" for at in range(3)]
    assert load(spark, cluster, "played-again").count() == 0
    assert run_text(spark, text) == ["sent 3 messages"]
    rows = load(spark, cluster, "played-again").orderBy("queueOffset").collect()
    assert [
        (
            bytes(row.body),
            row["keys"],
            row.tags,
            row.queueId,
            row.properties["own"],
            row.properties["resentFrom"],
        )
        for row in rows
    ] == [
        (f"m{at * 2}".encode(), f"k{at * 2}", "even", 0, str(at * 2), f"played@{BROKER}@0@{at}")
        for at in range(3)
    ]
    past = text.replace("since = 2020-01-01T00:00:00Z", "until = 2020-01-01T00:00:00Z")
    assert run_text(spark, past, dry_run=True) == []


def test_dead_letters_are_counted_and_sent_again(
    spark: SparkSession, cluster: RocketMQCluster, tmp_path: Path
) -> None:
    (letters,) = cluster.create("undecoded", 1)
    cluster.create("orders-of-letters", 1)
    for number in range(4):
        reason = "no JSON" if number else "no UTF-8"
        cluster.send_one(
            letters,
            Message(
                "undecoded",
                f"bad{number}".encode(),
                properties={
                    "deadLetterReason": reason,
                    "deadLetterOrigin": f"orders-of-letters@{BROKER}@0@{number}",
                },
            ),
        )
    text = (
        head("dead-letters", cluster)
        + "topics = ['undecoded']\nwhere = \"reason = 'no JSON'\"\n"
        + f"report = '{tmp_path}/report.csv'\n[resend]\n"
    )
    said = run_text(spark, text)
    today = datetime.now(tz=UTC).date()
    assert said[0] == "dead letters: 3"
    assert said[2].split() == ["-", "orders-of-letters", "no", "JSON", str(today), "00:00", "3"]
    assert said[-1] == "sent 3 messages"
    assert (tmp_path / "report.csv").read_text() == (
        f"group,topic,reason,day,letters\n-,orders-of-letters,no JSON,{today} 00:00,3\n"
    )
    again = load(spark, cluster, "orders-of-letters").select("body").collect()
    assert sorted(bytes(row.body) for row in again) == [b"bad1", b"bad2", b"bad3"]


def test_traces_become_latencies_slow_groups_and_hot_keys(
    spark: SparkSession, cluster: RocketMQCluster, tmp_path: Path
) -> None:
    (queue,) = cluster.create("traces", 1)
    lines = []
    for number in range(100):
        sent = pub_line(
            time_ms=1_000 + number,
            region="DefaultRegion",
            group="producers",
            topic="orders",
            message_id=f"id{number}",
            tags=None,
            keys="hot" if number < 60 else f"k{number} hot2",
            store_host="127.0.0.1:10911",
            body_bytes=10,
            cost_ms=number + 1,
            message_type="Normal_Msg",
            offset_message_id="x",
            is_success=number != 7,
        )
        got = sub_before_line(
            time_ms=1_500 + number,
            region="DefaultRegion",
            group="slow" if number % 2 else "quick",
            topic="orders",
            request_id=f"r{number}",
            message_id=f"id{number}",
            retry_times=0,
            keys=None,
        )
        done = sub_after_line(
            topic="orders",
            request_id=f"r{number}",
            message_id=f"id{number}",
            cost_ms=200 if number % 2 else 3,
            is_success=True,
            keys=None,
            context_code=0,
            time_ms=1_800 + number,
            group="slow" if number % 2 else "quick",
        )
        lines.append((sent.text + got.text + done.text).encode())
    cluster.send(queue, [*lines, lines[0]])
    text = (
        head("analytics", cluster)
        + f'trace_topics = ["traces"]\ntop = 3\nhtml = "{tmp_path}/report.html"\n'
    )
    said = run_text(spark, text)
    rows = [line.split() for line in said]
    assert ["orders", "100", "1", "50.5", "90.1", "99.0"] in rows
    slow, quick = (
        rows.index(next(row for row in rows if row[:1] == ["slow"])),
        rows.index(next(row for row in rows if row[:1] == ["quick"])),
    )
    assert slow < quick
    assert rows[slow] == ["slow", "50", "0", "200.0", "200.0", "200.0", "500.0"]
    assert ["orders", "hot", "60"] in rows
    assert ["orders", "hot2", "40"] in rows
    page = (tmp_path / "report.html").read_text()
    assert "<svg" in page
    assert "slow" in page
    assert said[-1] == f"wrote {tmp_path}/report.html"
