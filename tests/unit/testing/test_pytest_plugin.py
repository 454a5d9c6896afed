"""The fixtures as a user's own tests get them: another pytest, with nothing but the plugin."""

import subprocess
import sys
from pathlib import Path

SECONDS_MAX = 240.0

A_TEST_FILE = """
import asyncio

import downrange
from downrange import sync


def test_a_blocking_client(rocketmq):
    with sync.connect(rocketmq.name_servers) as mq:
        mq.send("orders", b"hello")
    assert [message.body for message in rocketmq.messages("orders")] == [b"hello"]


def test_every_test_has_a_cluster_of_its_own(rocketmq):
    assert rocketmq.messages("orders") == []


def test_an_asyncio_client(rocketmq):
    async def main():
        async with downrange.connect(rocketmq.name_servers) as mq:
            await mq.send("orders", b"hello")
            async for message in mq.consume("orders", group="g", start_at="first"):
                return message.body

    assert asyncio.run(main()) == b"hello"


def test_time(rocketmq, rocketmq_clock):
    assert rocketmq_clock.is_frozen
    with sync.connect(rocketmq.name_servers) as mq:
        mq.send("orders", b"later", delay_s=7200)
        assert rocketmq.messages("orders") == []
        rocketmq_clock.advance(7201)
        assert len(rocketmq.messages("orders")) == 1


SESSIONS = []


def test_shared_first(rocketmq_shared):
    SESSIONS.append(rocketmq_shared.name_servers)
    rocketmq_shared.refuse_next_send(count=9, topic="other")
    rocketmq_shared.create_topic("orders")
    with sync.connect(rocketmq_shared.name_servers) as mq:
        mq.send("orders", b"of the first test")


def test_shared_second(rocketmq_clock, rocketmq_shared):
    SESSIONS.append(rocketmq_shared.name_servers)
    assert rocketmq_shared.messages("orders") == []
    assert rocketmq_shared.refusals_left == 0
    assert rocketmq_clock is rocketmq_shared.clock
    rocketmq_shared.kill_broker()


def test_shared_third(rocketmq_shared):
    SESSIONS.append(rocketmq_shared.name_servers)
    assert not rocketmq_shared.clock.is_frozen
    assert len(set(SESSIONS)) == 1
    with sync.connect(rocketmq_shared.name_servers) as mq:
        assert mq.send("orders", b"again").queue_offset == 0
"""

A_FILE_WITHOUT = """
import sys


def test_nothing_is_loaded_for_who_does_not_ask():
    assert "downrange.testing.pytest_plugin" in sys.modules
    assert [name for name in sys.modules if name.startswith("downrange.broker")] == []
"""


def run_pytest(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = [
        sys.executable,
        "-W",
        "error",
        "-m",
        "pytest",
        "-p",
        "no:cacheprovider",
        "-p",
        "no:xdist",
    ]
    return subprocess.run(
        [*command, *arguments],
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=SECONDS_MAX,
        check=False,
    )


def test_the_fixtures_work_in_the_tests_of_a_user(tmp_path: Path) -> None:
    (tmp_path / "test_mine.py").write_text(A_TEST_FILE)
    done = run_pytest(tmp_path, "-q")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "7 passed" in done.stdout


def test_who_does_not_use_the_plugin_does_not_pay_for_it(tmp_path: Path) -> None:
    (tmp_path / "test_mine.py").write_text(A_FILE_WITHOUT)
    done = run_pytest(tmp_path, "-q")
    assert done.returncode == 0, done.stdout + done.stderr
    listed = run_pytest(tmp_path, "--fixtures", "-q").stdout
    for name in ("rocketmq", "rocketmq_shared", "rocketmq_clock"):
        assert f"\n{name}" in listed
