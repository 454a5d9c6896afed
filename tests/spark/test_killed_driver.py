"""A driver that dies between the write of a batch and its commit: nothing is lost or moved."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from spark.rocketmq_cluster import RocketMQCluster

PROGRAM = Path(__file__).parent / "killed_driver.py"
RUN_S_MAX = 400


def run(cluster: RocketMQCluster, folder: Path, kill_at: int) -> int:
    arguments = [cluster.names.address, "killed", str(folder), str(kill_at)]
    log = folder / "driver.log"
    with log.open("ab") as sink:
        done = subprocess.run(
            [sys.executable, str(PROGRAM), *arguments],
            stdout=sink,
            stderr=subprocess.STDOUT,
            env={**os.environ, "PYSPARK_PYTHON": sys.executable, "SPARK_LOCAL_IP": "127.0.0.1"},
            timeout=RUN_S_MAX,
            check=False,
        )
    return done.returncode


@pytest.mark.slow
def test_every_message_comes_once_although_drivers_die(
    cluster: RocketMQCluster, tmp_path: Path
) -> None:
    queues = cluster.create("killed", 3)
    sent = {
        (queue.queue_id, offset): f"{queue.queue_id}-{offset}".encode()
        for queue in queues
        for offset in range(60)
    }
    for queue in queues:
        cluster.send(queue, [sent[queue.queue_id, offset] for offset in range(60)])
    for kill_at in (0, 2, 4):
        assert run(cluster, tmp_path, kill_at) == 9
    assert run(cluster, tmp_path, -1) == 0, (tmp_path / "driver.log").read_text()[-4000:]
    rows = [
        tuple(row)
        for place in sorted((tmp_path / "out").glob("*.json"))
        for row in json.loads(place.read_text())
    ]
    assert len(rows) == len(sent)
    assert {(queue, offset): bytes.fromhex(body) for queue, offset, body in rows} == sent
