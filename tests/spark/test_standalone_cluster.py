"""A real Spark cluster: master, two workers and driver in processes of their own.

Started from the pyspark package on the loopback address. The package is shipped with the job as a
wheel; the Pythons of driver and executors see its dependencies, and not this source tree.
"""

import json
import os
import subprocess
import sys
import sysconfig
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pyspark
import pytest
from processes import LOOPBACK, Server, free_port
from spark.rocketmq_cluster import RocketMQCluster

ROOT = Path(__file__).resolve().parents[2]
SPARK_HOME = Path(pyspark.__file__).parent
START_S_MAX = 120.0
BUILD_S_MAX = 300.0
JOB_S_MAX = 420.0

pytestmark = pytest.mark.slow


def environment(folder: Path) -> dict[str, str]:
    """For all processes: a folder on PYTHONPATH has no .pth files read, so src is not on it."""
    kept = {name: os.environ[name] for name in ("PATH", "HOME", "JAVA_HOME") if name in os.environ}
    return {
        **kept,
        "SPARK_HOME": str(SPARK_HOME),
        "SPARK_LOCAL_IP": LOOPBACK,
        "SPARK_LOG_DIR": str(folder),
        "SPARK_LOCAL_DIRS": str(folder / "scratch"),
        "PYTHONPATH": sysconfig.get_paths()["purelib"],
        "PYSPARK_PYTHON": str(Path(sys.base_prefix) / "bin" / "python3"),
        "PYSPARK_DRIVER_PYTHON": str(Path(sys.base_prefix) / "bin" / "python3"),
    }


def start(folder: Path, name: str, arguments: list[str], ready: str) -> Server:
    output = folder / f"{name}.log"
    with output.open("wb") as sink:
        process = subprocess.Popen(
            [str(SPARK_HOME / "bin" / "spark-class"), *arguments],
            cwd=folder, env=environment(folder),
            stdin=subprocess.DEVNULL, stdout=sink, stderr=subprocess.STDOUT,
        )  # fmt: skip
    server = Server(name, LOOPBACK, process, output)
    server.wait_for(ready, START_S_MAX)
    return server


@pytest.fixture
def master(tmp_path: Path) -> Iterator[str]:
    """The address of a master with two workers of one core each."""
    port = free_port()
    address = f"spark://{LOOPBACK}:{port}"
    with ExitStack() as stack:
        arguments = ["--host", LOOPBACK, "--port", str(port), "--webui-port", str(free_port())]
        main = "org.apache.spark.deploy.master.Master"
        first = start(tmp_path, "master", [main, *arguments], "I have been elected leader")
        stack.enter_context(first)
        for number in (1, 2):
            arguments = [
                "--host", LOOPBACK, "--cores", "1", "--memory", "1g", "--webui-port",
                str(free_port()), "--work-dir", str(tmp_path / f"work-{number}"), address,
            ]  # fmt: skip
            worker = ["org.apache.spark.deploy.worker.Worker", *arguments]
            started = start(tmp_path, f"worker-{number}", worker, "Successfully registered")
            stack.enter_context(started)
        yield address


def wheel(folder: Path) -> Path:
    """The package as it would be published; Spark ships it to workers only if it is called .zip."""
    command = [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "-w", str(folder)]
    subprocess.run([*command, str(ROOT)], check=True, timeout=BUILD_S_MAX)
    (found,) = folder.glob("downrange-*.whl")
    return found.rename(found.with_suffix(".zip"))


def test_a_job_with_the_package_as_a_wheel_writes_reads_and_runs_a_pipeline(
    master: str, cluster: RocketMQCluster, tmp_path: Path
) -> None:
    topic = f"shipped-{time.monotonic_ns()}"
    cluster.create(topic, 4)
    cluster.create(f"{topic}-numbers", 2)
    package = wheel(tmp_path)
    job = Path(__file__).with_name("cluster_job.py")
    # The process that plans a stream on the driver is not told of --py-files (PySpark 4.3).
    around = environment(tmp_path)
    around["PYTHONPATH"] += f"{os.pathsep}{package}"
    done = subprocess.run(
        [
            str(SPARK_HOME / "bin" / "spark-submit"), "--master", master,
            "--py-files", str(package), "--conf", "spark.executor.memory=768m",
            "--conf", "spark.executor.cores=1", "--conf", f"spark.driver.host={LOOPBACK}",
            "--conf", "spark.ui.enabled=false", "--conf", "spark.driver.memory=768m",
            str(job), cluster.names.address, topic, f"{topic}-numbers", str(cluster.store),
            str(tmp_path),
        ],
        cwd=tmp_path, env=around, stdin=subprocess.DEVNULL,
        capture_output=True, timeout=JOB_S_MAX, check=False,
    )  # fmt: skip
    said = [
        line for line in done.stderr.decode(errors="replace").splitlines() if "INFO" not in line
    ]
    assert done.returncode == 0, "\n".join(said)[-8000:]
    figures = json.loads(done.stdout.splitlines()[-1])
    assert figures["distinct"] == figures["total"] == 20_000
    assert figures["store"] == figures["stream"] == 20_000
    assert figures["sent"] == 20_000
    assert figures["kept"] == sum(range(20_000))
    assert figures["executors"] == 2
    assert all(package.name in place for place in figures["packages"])
