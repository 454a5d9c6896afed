"""`downrange store` on files that a broker has left: what is there, what is damaged."""

import base64
import subprocess
import sys
from pathlib import Path

import pytest
from command_line import CommandLine
from unit.client.consuming import Site

from downrange.protocol.sys_flag import COMPRESSED
from downrange.testing.virtual_time import run

CONFIG = (
    "mappedFileSizeCommitLog=1048576\nmappedFileSizeConsumeQueue=20000\n"
    "maxHashSlotNum=100\nmaxIndexNum=1000\n"
)


@pytest.fixture
def store(tmp_path: Path) -> Path:
    async def main() -> None:
        async with Site(tmp_path / "brokers") as site:
            await site.create("orders", 2)
            for number in range(6):
                await site.send(
                    "orders", b"%d" % number, number % 2, properties=f"KEYS\x01k{number}\x02"
                )

    run(main())
    (tmp_path / "broker.conf").write_text(CONFIG)
    return tmp_path / "brokers" / "b1"


@pytest.fixture
def cli(tmp_path: Path) -> CommandLine:
    return CommandLine("127.0.0.1:1", tmp_path)


def test_what_is_there(cli: CommandLine, store: Path) -> None:
    facts = cli.json("store", "inspect", str(store))
    assert isinstance(facts, dict)
    shown = ("stopped_cleanly", "log_files", "log_file_bytes", "min_offset", "queue_files_bytes")
    assert [facts[name] for name in shown] == [True, 1, 1048576, 0, 20000]
    assert isinstance(facts["log_flushed_ms"], int)
    assert isinstance(facts["queues"], list)
    queues = [row for row in facts["queues"] if isinstance(row, dict)]
    assert [row for row in queues if row["topic"] == "orders"] == [
        {"topic": "orders", "queue": 0, "min_offset": 0, "max_offset": 3, "messages": 3},
        {"topic": "orders", "queue": 1, "min_offset": 0, "max_offset": 3, "messages": 3},
    ]  # fmt: skip
    assert "orders" in cli.do("store", "inspect", str(store)).out


@pytest.mark.parametrize("with_config", [False, True])
def test_a_sound_store(cli: CommandLine, store: Path, *, with_config: bool) -> None:
    words = ("-c", str(cli.config_folder / "broker.conf")) if with_config else ()
    before = {path: path.read_bytes() for path in store.rglob("*") if path.is_file()}
    assert cli.json("store", "verify", str(store), *words) == {
        "directory": str(store),
        "sound": True,
        "end_offset": pytest.approx(1000, abs=900),
        "records": 6,
        "queue_entries": 6,
        "holes": 0,
        "keys": 12 if with_config else 0,  # a key and a unique id each
        "index_checked": with_config,
        "damages": [],
    }
    assert {path: path.read_bytes() for path in store.rglob("*") if path.is_file()} == before


def test_a_damaged_store_is_exit_code_5(cli: CommandLine, store: Path) -> None:
    (log,) = (store / "commitlog").iterdir()
    data = bytearray(log.read_bytes())
    data[data.index(b"UNIQ_KEY\x01KEY00000003") - len(b"2\6orders\0\0")] ^= 0xFF
    log.write_bytes(data)
    done = cli.run("store", "verify", str(store), "-o", "json")
    assert done.code == 5
    assert isinstance(done.json, dict)
    assert done.json["sound"] is False
    assert isinstance(done.json["damages"], list)
    assert {row["file"] for row in done.json["damages"] if isinstance(row, dict)} >= {str(log)}
    dumped = cli.run("store", "dump", str(store))
    assert dumped.code == 5
    assert len(dumped.rows) == 5
    assert f"damage: {log} at " in dumped.err


def test_messages_are_dumped_as_they_were_stored(cli: CommandLine, store: Path) -> None:
    rows = cli.do("store", "dump", str(store)).rows
    assert [row["body"] for row in rows] == ["0", "1", "2", "3", "4", "5"]
    assert rows[0]["physical_offset"] == 0
    assert rows[1]["keys"] == ["k1"]
    words = ("store", "dump", str(store))
    some = cli.do(*words, "-t", "orders", "-q", "1", "--count", "2").rows
    assert [row["body"] for row in some] == ["1", "3"]
    behind = cli.do(*words, "--from", str(rows[4]["physical_offset"])).rows
    assert [row["body"] for row in behind] == ["4", "5"]
    assert cli.do(*words, "-t", "nix").out == ""


def test_a_message_that_cannot_be_decoded_is_dumped_with_the_reason(
    cli: CommandLine, tmp_path: Path
) -> None:
    async def main() -> None:
        async with Site(tmp_path / "odd") as site:
            await site.create("orders")
            await site.send("orders", b"not zlib", sys_flag=COMPRESSED)
            await site.send("orders", b"good")

    run(main())
    odd, good = cli.do("store", "dump", str(tmp_path / "odd" / "b1"), "-t", "orders").rows
    assert good["body"] == "good"
    assert "ZLIB body is damaged" in str(odd["invalid"])
    assert base64.b64decode(str(odd["body_base64"])) == b"not zlib"


def test_what_is_no_store(cli: CommandLine, tmp_path: Path) -> None:
    for command in ("inspect", "verify", "dump"):
        done = cli.run("store", command, str(tmp_path))
        assert done.code == 3, command
        assert f"is not a store: its commit log is not in {tmp_path / 'commitlog'}" in done.err
    (tmp_path / "commitlog").mkdir()
    (tmp_path / "bad.conf").write_text("mappedFileSizeCommitLog=x\n")
    assert cli.run("store", "inspect", str(tmp_path), "-c", str(tmp_path / "bad.conf")).code == 3
    empty = cli.json("store", "verify", str(tmp_path))
    assert isinstance(empty, dict)
    assert empty["records"] == 0


def test_a_damaged_table_is_named(cli: CommandLine, store: Path) -> None:
    for path in (store / "config").glob("topics.json*"):
        path.write_text("{damaged")
    done = cli.run("store", "inspect", str(store))
    assert done.code == 5
    assert "topics.json" in done.err
    assert "Traceback" not in done.err


def test_files_of_a_broker_that_runs_are_left_alone(cli: CommandLine, store: Path) -> None:
    program = "import fcntl, sys; f = open(sys.argv[1], 'r+'); fcntl.lockf(f, fcntl.LOCK_EX)"
    with subprocess.Popen(
        [sys.executable, "-c", program + "; print('held', flush=True); sys.stdin.read()",
         str(store / "lock")],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
    ) as holder:  # fmt: skip
        try:
            assert holder.stdout is not None
            assert holder.stdout.readline() == "held\n"
            done = cli.run("store", "verify", str(store))
        finally:
            holder.kill()
    assert done.code == 1
    assert "is in use by a broker; stop it first" in done.err
    assert cli.run("store", "verify", str(store)).code == 0


@pytest.mark.parametrize("by_file", [False, True])
def test_a_commit_log_elsewhere(cli: CommandLine, store: Path, *, by_file: bool) -> None:
    elsewhere = cli.config_folder / "fast"
    (store / "commitlog").rename(elsewhere)
    missing = cli.run("store", "inspect", str(store))
    assert missing.code == 3
    assert "--commit-log" in missing.err
    config = cli.config_folder / "elsewhere.conf"
    config.write_text(CONFIG + f"storePathCommitLog={elsewhere}\n")
    words = ("-c", str(config)) if by_file else ("--commit-log", str(elsewhere))
    facts = cli.json("store", "inspect", str(store), *words)
    assert isinstance(facts, dict)
    assert (facts["log_files"], facts["commit_log"]) == (1, str(elsewhere))
    verified = cli.json("store", "verify", str(store), *words)
    assert isinstance(verified, dict)
    assert verified["sound"] is True
    assert int(str(verified["records"])) >= 6
