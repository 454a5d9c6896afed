"""The files in deploy/ name things that exist; systemd hears of a start."""

import re
import shlex
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from downrange.app.cli import SUBCOMMANDS
from downrange.app.systemd import READY, notify
from downrange.broker.settings import BrokerSettings, StoreFileSettings
from downrange.monitoring.settings import MonitoringSettings
from downrange.nameserver.settings import NameServerSettings
from downrange.runtime.settings import keys_of

DEPLOY = Path(__file__).resolve().parents[3] / "deploy"
UNITS = sorted(DEPLOY.glob("systemd/*.service"))
SECONDS_MAX = 60.0
KEYS = keys_of(BrokerSettings, StoreFileSettings, MonitoringSettings)
KEYS += keys_of(NameServerSettings)
KNOWN = {f"DOWNRANGE_{key.upper()}" for key in KEYS} | {"DOWNRANGE_LOG_FORMAT"}


def lines(path: Path, key: str) -> Iterator[str]:
    for line in path.read_text(encoding="utf-8").splitlines():
        if line.startswith(f"{key}="):
            yield line.partition("=")[2]


@pytest.mark.parametrize("path", UNITS, ids=lambda path: path.name)
def test_a_unit_starts_a_subcommand_with_settings_that_exist(path: Path) -> None:
    (command,) = lines(path, "ExecStart")
    assert shlex.split(command)[1] in {row.name for row in SUBCOMMANDS}
    variables = {setting.partition("=")[0] for setting in lines(path, "Environment")}
    assert variables
    assert variables <= KNOWN
    assert list(lines(path, "Type")) == ["notify"]
    assert list(lines(path, "ProtectSystem")) == ["strict"]
    (state,) = lines(path, "StateDirectory")
    assert all(f"/var/lib/{state}/" in value for value in lines(path, "Environment"))


def test_there_is_a_unit_for_each_server() -> None:
    assert [path.stem for path in UNITS] == ["downrange-broker", "downrange-namesrv"]


def test_the_container_has_settings_that_exist_and_takes_no_image_from_an_address() -> None:
    text = (DEPLOY / "Containerfile").read_text(encoding="utf-8")
    assert set(re.findall(r"DOWNRANGE_[A-Z0-9_]+", text)) <= KNOWN
    images = re.findall(r"^FROM (\S+)", text, re.MULTILINE)
    assert images
    assert all("/" not in image for image in images)
    assert re.search(r"^USER downrange$", text, re.MULTILINE)


def test_systemd_is_told_when_a_server_is_ready_and_when_it_stops(tmp_path: Path) -> None:
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as listener:
        listener.bind(str(tmp_path / "notify"))
        listener.settimeout(SECONDS_MAX)
        conf = tmp_path / "ns.conf"
        conf.write_text(f"kvConfigPath={tmp_path}/kv.json\nlistenPort=0\nbindAddress=127.0.0.1\n")
        command = [sys.executable, "-m", "downrange.app.cli", "namesrv", "-c", str(conf)]
        with subprocess.Popen(
            command, stderr=subprocess.DEVNULL, env={"NOTIFY_SOCKET": str(tmp_path / "notify")}
        ) as process:
            try:
                assert listener.recv(100) == b"READY=1"
                process.send_signal(signal.SIGTERM)
                assert listener.recv(100) == b"STOPPING=1"
                assert process.wait(SECONDS_MAX) == 0
            finally:
                process.kill()


def test_without_systemd_nothing_is_said_and_a_lost_one_is_no_failure(tmp_path: Path) -> None:
    assert not notify(READY, {})
    assert not notify(READY, {"NOTIFY_SOCKET": str(tmp_path / "nobody")})
    assert not notify(READY, {"NOTIFY_SOCKET": "nonsense"})
