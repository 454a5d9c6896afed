"""The command line, as processes: what they print, how they end."""

import os
import re
import select
import signal
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from downrange.app.cli import main
from downrange.app.nameserver import read_settings
from downrange.runtime.settings import SettingsError

SECONDS_MAX = 30.0
COMMAND = [sys.executable, "-m", "downrange.app.cli"]
LINE = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3} [A-Z]+ downrange\.[\w.]+: .+")


def run_to_its_end(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*COMMAND, *arguments], capture_output=True, text=True, timeout=SECONDS_MAX, check=False
    )


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_name_server_starts_and_stops_on_a_signal(tmp_path: Path, number: signal.Signals) -> None:
    (tmp_path / "ns.conf").write_text(f"kvConfigPath={tmp_path}/kv.json\nnonsense=1\n")
    arguments = ["namesrv", "--host", "127.0.0.1", "--port", "0", "-c", str(tmp_path / "ns.conf")]
    with subprocess.Popen([*COMMAND, *arguments], stderr=subprocess.PIPE, text=True) as process:
        assert process.stderr is not None
        try:
            lines: list[str] = []
            while not lines or "name server ready" not in lines[-1]:
                ready, _, _ = select.select([process.stderr], [], [], SECONDS_MAX)
                assert ready, lines
                lines.append(process.stderr.readline())
                assert lines[-1], lines
            process.send_signal(number)
            rest = process.communicate(timeout=SECONDS_MAX)[1]
        finally:
            process.kill()
    assert process.returncode == 0
    assert "line 2: unknown setting nonsense is ignored" in lines[0]
    assert f"stopping on {number.name}" in rest
    assert all(LINE.fullmatch(line) for line in ("".join(lines) + rest).splitlines())


def test_a_taken_port_is_one_clear_line_and_exit_code_1() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        done = run_to_its_end("namesrv", "--host", "127.0.0.1", "--port", port)
    assert done.returncode == 1
    assert "Traceback" not in done.stderr
    (line,) = done.stderr.splitlines()
    assert "cannot start" in line
    assert "choose another port" in line


def test_a_bad_setting_is_one_clear_line_and_exit_code_1() -> None:
    done = run_to_its_end("namesrv", "--port", "x")
    assert done.returncode == 1
    (line,) = done.stderr.splitlines()
    assert line.endswith("--port: listenPort is 'x', but must be a whole number from 0 to 65535")


def test_a_damaged_table_is_one_clear_line_and_exit_code_1(tmp_path: Path) -> None:
    (tmp_path / "kv.json").write_text("{damaged")
    (tmp_path / "ns.conf").write_text(f"kvConfigPath={tmp_path}/kv.json\nlistenPort=0\n")
    done = run_to_its_end("namesrv", "-c", str(tmp_path / "ns.conf"))
    assert done.returncode == 1
    (line,) = done.stderr.splitlines()
    assert "cannot start" in line
    assert f"{tmp_path}{os.sep}kv.json" in line


def test_without_a_subcommand_the_usage_is_shown(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit, match="2"):
        main([])
    assert "namesrv" in capsys.readouterr().err


def test_the_command_line_wins_over_the_file_and_changes_go_into_the_file(tmp_path: Path) -> None:
    path = tmp_path / "ns.conf"
    path.write_text("listenPort=1\nbindAddress=10.0.0.1\nconfigStorePath=/elsewhere\n")
    settings, *_ = read_settings(path, port="2")
    assert (settings.port, settings.host, settings.config_store_path) == (2, "10.0.0.1", path)
    assert read_settings(None)[0].port == 9876
    with pytest.raises(SettingsError, match="cannot read"):
        read_settings(tmp_path / "nix")
