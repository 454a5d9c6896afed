"""Every snippet of README, tutorial and guides runs as it stands, against a real cluster."""

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from downrange.embedded.dev_cluster import DevCluster

DOCS = Path(__file__).resolve().parents[2] / "docs"
SNIPPET = re.compile(r"^```python\n(.*?)^```$", re.MULTILINE | re.DOTALL)
ADDRESS = "127.0.0.1:9876"
SECONDS_MAX = 900.0  # of one program; a start of Spark on a busy machine is slow


@pytest.fixture
def cluster() -> Iterator[DevCluster]:
    with DevCluster() as running:
        yield running


def outputs_of(page: str, cluster: DevCluster, folder: Path) -> list[str]:
    """What the snippets of a page print, one program after the other."""
    outputs = []
    for number, snippet in enumerate(SNIPPET.findall((DOCS / page).read_text(encoding="utf-8"))):
        assert ADDRESS in snippet or "import" in snippet, "a reader pastes it as it stands"
        program = folder / f"snippet{number}.py"
        program.write_text(snippet.replace(ADDRESS, cluster.name_servers), encoding="utf-8")
        done = subprocess.run(
            [sys.executable, str(program)],
            capture_output=True,
            text=True,
            timeout=SECONDS_MAX,
            check=False,
            cwd=folder,
            env=os.environ | {"PYSPARK_PYTHON": sys.executable, "SPARK_LOCAL_IP": "127.0.0.1"},
        )
        assert done.returncode == 0, done.stdout + done.stderr
        outputs.append(done.stdout)
    return outputs


def test_the_tutorial(cluster: DevCluster, tmp_path: Path) -> None:
    sent, consumed, blocking = outputs_of("tutorial.md", cluster, tmp_path)
    assert sent.startswith("stored: ")
    assert consumed == "got: b'{\"order\": 1, \"price\": 12.5}' new ['1']\n"
    assert blocking == "got: b'{\"order\": 3}'\n"


def test_coming_from_rocketmq_client_python(cluster: DevCluster, tmp_path: Path) -> None:
    sent, consumed = outputs_of("from-rocketmq-client-python.md", cluster, tmp_path)
    assert sent.startswith("SEND_OK ")
    lines = [line.split()[-1] for line in consumed.splitlines()]
    assert sorted(lines) == ["Grüße", "created", "later", "paid", "shipped"]


def test_pointing_at_an_apache_cluster(cluster: DevCluster, tmp_path: Path) -> None:
    consumed, *_ = outputs_of("apache-clusters.md", cluster, tmp_path)
    assert consumed.endswith(" b'...'\n")


def test_the_readme(cluster: DevCluster, tmp_path: Path) -> None:
    client, store = outputs_of("../README.md", cluster, tmp_path)
    sent, got = client.splitlines()
    assert sent.startswith("sent ")
    assert got == "got b'42 cups'"
    assert store == "0 b'a body'\n"


@pytest.mark.spark
@pytest.mark.slow
@pytest.mark.skipif(shutil.which("java") is None, reason="Spark needs Java 17")
def test_coming_from_kafka_and_spark(cluster: DevCluster, tmp_path: Path) -> None:
    (shown,) = outputs_of("from-kafka-and-spark.md", cluster, tmp_path)
    counts = [int(line.split("|")[2]) for line in shown.splitlines() if line[1:2] == " "]
    assert sum(counts) == 1000, shown
