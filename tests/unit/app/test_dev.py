"""`downrange dev`: where it is, what it prints, how it ends."""

import signal
import socket
import subprocess
from pathlib import Path

import pytest
from unit.app.dev_process import COMMAND, SECONDS_MAX, DevProcess

from downrange import sync
from downrange.app.dev import DevOptions, plan_of
from downrange.app.dev_text import DevAddresses, welcome
from downrange.embedded.ports import FREE_PORTS
from downrange.runtime.settings import SettingsError


def run_to_its_end(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*COMMAND, *arguments], capture_output=True, text=True, timeout=SECONDS_MAX, check=False
    )


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_message_goes_through_and_a_signal_ends_it_without_a_trace(
    number: signal.Signals,
) -> None:
    with DevProcess("--any-port") as dev:
        assert dev.ready.process_id == dev.process.pid
        assert list(dev.ready.brokers) == ["broker-a"]
        assert dev.ready.name_servers.startswith("127.0.0.1:")
        assert Path(dev.ready.data).is_dir()
        with sync.connect(dev.ready.name_servers) as mq:
            receipt = mq.send("orders", b"hello")
        assert receipt.queue.broker_name == "broker-a"
        code, out, err = dev.stop(number)
        assert (code, out, err) == (0, "", "")
        assert dev.ready.is_temporary
        assert not Path(dev.ready.data).exists()


def test_messages_in_a_named_directory_are_there_at_the_next_start(tmp_path: Path) -> None:
    data = tmp_path / "kept"
    with DevProcess("--any-port", "--data", str(data)) as dev:
        assert not dev.ready.is_temporary
        with sync.connect(dev.ready.name_servers) as mq:
            mq.send("orders", b"hello")
        assert dev.stop()[0] == 0
    with DevProcess("--any-port", "--data", str(data)) as dev:
        assert dev.ready.data == str(data)
        with sync.connect(dev.ready.name_servers) as mq:
            messages = mq.consume("orders", group="g", start_at="first", idle_timeout_s=SECONDS_MAX)
            assert next(iter(messages)).body == b"hello"
        assert dev.stop()[0] == 0


def test_three_brokers_are_known_to_one_name_server() -> None:
    with DevProcess("--any-port", "-n", "3") as dev:
        assert list(dev.ready.brokers) == ["broker-a", "broker-b", "broker-c"]
        with sync.connect(dev.ready.name_servers) as mq:
            used = {mq.send("orders", b"x").queue.broker_name for _ in range(64)}
        assert used <= set(dev.ready.brokers)
        assert dev.stop()[0] == 0


def test_a_taken_port_is_one_clear_line_that_names_any_port() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        done = run_to_its_end("--port", str(port), "--broker-port", "0")
    assert (done.returncode, done.stdout) == (1, "")
    (line,) = done.stderr.splitlines()
    assert f"127.0.0.1:{port}, where the name server should listen" in line
    assert "--any-port" in line
    assert "--port" in line


def test_a_taken_broker_port_names_the_broker_and_leaves_nothing_behind(tmp_path: Path) -> None:
    port = FREE_PORTS.take("127.0.0.1")
    with socket.create_server(("127.0.0.1", port)):
        done = run_to_its_end(
            "--port", "0", "--broker-port", str(port), "--data", str(tmp_path / "data")
        )
    assert done.returncode == 1
    (line,) = [line for line in done.stderr.splitlines() if "CRITICAL" in line]
    assert f"127.0.0.1:{port}, where the broker-a should listen" in line
    assert "--broker-port" in line
    assert not (tmp_path / "data" / "broker-a" / "abort").exists()  # closed in order


@pytest.mark.parametrize(
    ("arguments", "part"),
    [
        (("--port", "70000"), "--port is 70000, but must be from 0 to 65535"),
        (("-n", "0"), "-n is 0, but must be from 1 to 26"),
        (("--set", "x"), "write KEY=VALUE"),
        (("--set", "colour=red"), "no such setting of a broker: colour"),
        (("--set", "fileReservedTime=soon"), "fileReservedTime is 'soon'"),
    ],
)
def test_a_wrong_option_is_one_clear_line(arguments: tuple[str, ...], part: str) -> None:
    done = run_to_its_end("--any-port", *arguments)
    assert done.returncode == 1
    (line,) = done.stderr.splitlines()
    assert part in line


def test_settings_reach_the_brokers_and_sql_filters_are_on() -> None:
    plan = plan_of(DevOptions(settings=("defaultTopicQueueNums=2", "flushDiskType=SYNC_FLUSH")))
    assert plan.broker.default_queue_nums == 2
    assert plan.broker.sql92_enabled
    assert plan.store_files.flush_mode.value == "SYNC_FLUSH"
    assert not plan_of(DevOptions(settings=("enablePropertyFilter=false",))).broker.sql92_enabled
    with pytest.raises(SettingsError, match="no such setting"):
        plan_of(DevOptions(settings=("nix=1",)))


def test_the_text_has_every_address_and_code_to_paste() -> None:
    text = welcome(
        DevAddresses(
            name_servers="10.1.2.3:9876",
            brokers={"broker-a": "10.1.2.3:10911", "broker-b": "10.1.2.3:10921"},
            data="/data",
            is_temporary=False,
            process_id=1,
            http="http://10.1.2.3:1",
        )
    )
    for part in ("10.1.2.3:10911", "10.1.2.3:10921", "/data", "http://10.1.2.3:1"):
        assert part in text
    assert 'downrange.connect("10.1.2.3:9876")' in text
    assert 'setNamesrvAddr("10.1.2.3:9876")' in text
    assert "mqadmin clusterList -n 10.1.2.3:9876" in text
    assert "--advertise ADDRESS" in text
    assert "Clients are told to connect to 10.1.2.3." in text
    assert "deleted" not in text
