"""Servers as services: pages over HTTP, logs for programs, settings by file and environment."""

import json
import logging
import os
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from prometheus_client.parser import text_string_to_metric_families as parse
from unit.app.dev_process import DevProcess

from downrange.app import broker, nameserver
from downrange.app.environment import environment_properties
from downrange.embedded.ports import FREE_PORTS
from downrange.monitoring.settings import MonitoringSettings
from downrange.runtime.log_lines import JsonFormatter
from downrange.runtime.settings import SettingsError

SECONDS_MAX = 60.0
COMMAND = [sys.executable, "-m", "downrange.app.cli"]


def get(url: str) -> tuple[int, str]:
    try:
        with urllib.request.urlopen(url, timeout=SECONDS_MAX) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as error:
        with error:
            return error.code, error.read().decode()


def get_until(url: str, wanted: int) -> str:
    """Ask until the answer has this status; a server may not listen yet."""
    deadline_s = time.monotonic() + SECONDS_MAX
    while True:
        try:
            status, text = get(url)
            if status == wanted:
                return text
        except urllib.error.URLError:
            text = "nobody listens"
        assert time.monotonic() < deadline_s, text
        time.sleep(0.05)


@contextmanager
def running(*arguments: str, **environment: str) -> Iterator[subprocess.Popen[str]]:
    process = subprocess.Popen(
        [*COMMAND, *arguments],
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, **environment},
    )
    try:
        yield process
    finally:
        if process.poll() is None:
            process.kill()
        process.communicate(timeout=SECONDS_MAX)


def test_a_name_server_and_a_broker_show_themselves(tmp_path: Path) -> None:
    port, name_http, broker_http, names = (FREE_PORTS.take("127.0.0.1") for _ in range(4))
    conf = tmp_path / "ns.conf"
    conf.write_text(f"kvConfigPath={tmp_path}/kv.json\n")
    broker_arguments = [
        "broker", "--store", str(tmp_path / "store"), "--http-port", str(broker_http),
        "-n", f"127.0.0.1:{names}", "--log-format", "json",
    ]  # fmt: skip
    environment = {
        "DOWNRANGE_LISTENPORT": str(port),
        "DOWNRANGE_BROKERIP1": "127.0.0.1",
        "DOWNRANGE_BINDADDRESS": "127.0.0.1",
        "DOWNRANGE_BROKERNAME": "broker-x",
    }
    with running(*broker_arguments, **environment) as process:
        page = f"http://127.0.0.1:{broker_http}"
        text = get_until(f"{page}/readyz", 503)
        while "clients cannot find it" not in text:  # at first it was still starting
            text = get_until(f"{page}/readyz", 503)
        assert get(f"{page}/healthz") == (200, "ok\n")
        families = {family.name for family in parse(get(f"{page}/metrics")[1])}
        assert {"rocketmq_broker_permission", "process_resident_memory_bytes"} <= families
        name_arguments = ["namesrv", "-c", str(conf), "--host", "127.0.0.1"]
        with running(
            *name_arguments, "--port", str(names), DOWNRANGE_HTTPPORT=str(name_http)
        ) as name_process:
            assert get_until(f"http://127.0.0.1:{name_http}/readyz", 200) == "ok\n"
            metrics = get(f"http://127.0.0.1:{name_http}/metrics")[1]
            assert "downrange_nameserver_topics 0" in metrics
            name_process.terminate()
            assert name_process.wait(SECONDS_MAX) == 0
        process.terminate()
        log = process.communicate(timeout=SECONDS_MAX)[1]
    assert process.returncode == 0
    events = [json.loads(line) for line in log.splitlines()]
    assert any(event["message"].startswith("broker broker-x serves") for event in events)
    assert {"time", "level", "logger", "message"} <= set(events[0])
    assert f"127.0.0.1:{port}" in log


def test_a_taken_http_port_is_one_clear_line(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        arguments = ["broker", "--store", str(tmp_path), "--port", "0", "--http-port", port]
        done = subprocess.run(
            [*COMMAND, *arguments], capture_output=True, text=True, timeout=SECONDS_MAX, check=False
        )
    assert done.returncode == 1
    (line,) = done.stderr.splitlines()
    assert f"the HTTP port 127.0.0.1:{port} is not available" in line
    assert "another httpPort" in line


def test_a_dev_cluster_shows_all_of_its_servers_on_one_port() -> None:
    with DevProcess("--any-port", "-n", "2") as dev:
        assert dev.ready.http is not None
        assert get(f"{dev.ready.http}/readyz") == (200, "ok\n")
        assert get(f"{dev.ready.http}/healthz") == (200, "ok\n")
        status, text = get(f"{dev.ready.http}/metrics")
        assert status == 200
        families = {family.name: family for family in parse(text)}
        nodes = {s.labels["node_id"] for s in families["rocketmq_broker_permission"].samples}
        assert nodes == {"broker-a", "broker-b"}
        (sample,) = families["downrange_nameserver_brokers"].samples
        assert (sample.labels, sample.value) == ({"cluster": "DefaultCluster"}, 2)
        assert get(f"{dev.ready.http}/")[0] == 404
        assert dev.stop()[0] == 0
    with DevProcess("--any-port", "--http-port", "-1") as dev:
        assert dev.ready.http is None
        assert dev.stop()[0] == 0


def test_the_command_line_wins_over_the_environment_and_this_over_the_file(tmp_path: Path) -> None:
    file = tmp_path / "broker.conf"
    file.write_text("listenPort=1\nbrokerName=file\nfileReservedTime=7\nhttpPort=5\n")
    environ = {"DOWNRANGE_LISTENPORT": "2", "DOWNRANGE_BROKERNAME": "environment"}
    settings = broker.read_settings(file, port="3", environ=environ)
    assert settings.broker.listen_port == 3
    assert settings.broker.broker_name == "environment"
    assert settings.store_files.file_reserved_hours == 7
    assert settings.monitoring.door == ("127.0.0.1", 5)
    assert broker.read_settings(None, store=str(tmp_path)).monitoring.door is None


def test_a_wrong_variable_is_named(caplog: pytest.LogCaptureFixture) -> None:
    with pytest.raises(SettingsError, match="environment variable DOWNRANGE_LISTENPORT"):
        nameserver.read_settings(None, environ={"DOWNRANGE_LISTENPORT": "x"})
    environ = {"DOWNRANGE_LISTENPROT": "1", "DOWNRANGE_NAME_SERVERS": "a", "PATH": "b"}
    assert environment_properties(environ, ["listenPort"]) == []
    (record,) = caplog.records
    assert "do you mean DOWNRANGE_LISTENPORT?" in record.getMessage()


def test_settings_changed_at_run_time_are_found_where_the_environment_puts_the_store(
    tmp_path: Path,
) -> None:
    (tmp_path / "config").mkdir()
    (tmp_path / "config" / "broker.properties").write_text("fileReservedTime=9\n")
    environ = {"DOWNRANGE_STOREPATHROOTDIR": str(tmp_path)}
    assert broker.read_settings(None, environ=environ).store_files.file_reserved_hours == 9


def test_rocketmq_s_own_switch_for_prometheus_opens_the_door(tmp_path: Path) -> None:
    file = tmp_path / "broker.conf"
    file.write_text("metricsExporterType=PROM\nmetricsPromExporterHost=10.0.0.1\n")
    assert broker.read_settings(file).monitoring.door == ("10.0.0.1", 5557)
    file.write_text("metricsExporterType=LOG\n")
    with pytest.raises(SettingsError, match="must be DISABLE or PROM"):
        broker.read_settings(file)
    assert MonitoringSettings(port=0).door == ("127.0.0.1", 0)


def test_a_failure_is_one_json_object_with_its_traceback() -> None:
    error = ValueError("two\nlines")
    failure = (ValueError, error, None)
    record = logging.LogRecord("a.b", logging.ERROR, "f", 1, "it %s", ("broke",), failure)
    record.created = 1_700_000_000.25
    event = json.loads(JsonFormatter().format(record))
    assert event["time"] == "2023-11-14T22:13:20.250Z"
    assert (event["level"], event["logger"], event["message"]) == ("ERROR", "a.b", "it broke")
    assert event["exception"].endswith("ValueError: two\nlines")


def test_what_a_file_of_an_apache_broker_says_is_honoured_refused_or_reported(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    file = tmp_path / "broker.conf"
    file.write_text(
        "storePathRootDir=/data/store\nstorePathCommitLog=/fast/a,/fast/b\n"
        "transientStorePoolEnable=true\nsendMessageThreadPoolNums=16\nflushDiskTyp=SYNC_FLUSH\n"
    )
    settings = broker.read_settings(file)
    log_paths = settings.store_files.log_paths
    assert log_paths.everywhere == (Path("/fast/a"), Path("/fast/b"))
    assert [record.message for record in caplog.records] == [
        f"{file}: settings of RocketMQ without effect here: sendMessageThreadPoolNums,"
        " transientStorePoolEnable",
        f"{file}, line 5: unknown setting flushDiskTyp is ignored; did you mean flushDiskType?",
    ]
    file.write_text("storeType=defaultRocksDB\nbrokerRole=SLAVE\n")
    with pytest.raises(SettingsError) as caught:
        broker.read_settings(file)
    for part in ("line 1: storeType=defaultRocksDB is not supported", "line 2: brokerRole=SLAVE"):
        assert part in str(caught.value)
