"""What the command line does without a cluster: help, contexts, completion, forms, places."""

import os
import stat
import subprocess
import sys
from pathlib import Path

import pytest
from command_line import CommandLine

from downrange.admin.errors import WrongRequestError
from downrange.admin.offset_plan import Target, TargetKind
from downrange.app import cli
from downrange.app.cli import SUBCOMMANDS, help_text, main
from downrange.app.commands import broker as broker_commands
from downrange.app.commands.contexts import Context, ContextFile, Contexts, chosen_cluster
from downrange.app.commands.message_form import LineForm
from downrange.app.commands.output import cell, time_text
from downrange.app.commands.places import parse_place, parse_time

NOW_MS = 1_700_000_000_000
COMMAND = [sys.executable, "-m", "downrange.app.cli"]
SECONDS_MAX = 60.0


def run_to_its_end(
    *words: str, environment: dict[str, str] | None = None
) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*COMMAND, *words], capture_output=True, text=True, timeout=SECONDS_MAX, check=False,
        env={**os.environ, **(environment or {})},
    )  # fmt: skip


def test_help_names_every_command(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--help"]) == 0
    printed = capsys.readouterr().out
    assert printed == help_text()
    for row in SUBCOMMANDS:
        assert f"  {row.name} " in printed


def test_a_wrong_word_is_one_line_and_exit_code_2(capsys: pytest.CaptureFixture[str]) -> None:
    for word, answer in (
        ("topics", "no such command: 'topics', did you mean 'topic'?"),
        ("xyzzy", "no such command: 'xyzzy'; `downrange --help` lists them"),
        ("--nix", "no such option: --nix; options stand behind the command"),
    ):
        with pytest.raises(SystemExit, match="2"):
            main([word])
        assert capsys.readouterr().err == f"downrange: {answer}\n"


@pytest.mark.parametrize("words", [["--help"], ["namesrv", "--help"], ["broker", "--help"]])
def test_help_and_servers_do_not_load_typer_or_rich(words: list[str]) -> None:
    program = (
        "import sys; from downrange.app.cli import main\n"
        "try: main(sys.argv[1:])\n"
        "except SystemExit: pass\n"
        "print('LOADED', [n for n in ('typer', 'rich', 'click') if n in sys.modules])"
    )
    done = subprocess.run(
        [sys.executable, "-c", program, *words],
        capture_output=True, text=True, timeout=SECONDS_MAX, check=True,
    )  # fmt: skip
    assert done.stdout.splitlines()[-1] == "LOADED []"


def test_the_words_of_the_broker_are_those_of_its_commands() -> None:
    (row,) = [one for one in SUBCOMMANDS if one.name == "broker"]
    app = broker_commands.app
    names = [one.name or "" for one in app.registered_commands]
    assert sorted([*names, *(str(one.name) for one in app.registered_groups)]) == sorted(row.words)
    assert row.is_process([])
    assert row.is_process(["--port", "1"])
    assert not row.is_process(["config", "get"])


def test_every_command_has_help(tmp_path: Path) -> None:
    terminal = CommandLine("127.0.0.1:1", tmp_path)
    for row in SUBCOMMANDS:
        if row.commands:
            assert "Usage: " in terminal.do(row.name, "--help").out


def test_a_usage_error_is_exit_code_2() -> None:
    done = run_to_its_end("topic", "create")
    assert done.returncode == 2
    assert "Missing argument" in done.stderr
    assert "Traceback" not in done.stderr
    assert run_to_its_end("topic", "list", "-o", "nix").returncode == 2


def test_version() -> None:
    done = run_to_its_end("--version")
    assert (done.returncode, done.stdout.split()[0]) == (0, "downrange")


def test_the_package_runs_as_a_program() -> None:
    command = [sys.executable, "-m", "downrange", "--version"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout == run_to_its_end("--version").stdout


# --- contexts ------------------------------------------------------------------------------


def test_contexts_are_added_used_listed_and_removed(tmp_path: Path) -> None:
    terminal = CommandLine("", tmp_path / "config")
    assert terminal.rows("context", "list") == []
    words = ("context", "add", "live", "-n", "10.0.0.1:9876", "--access-key", "a",
             "--secret-key", "s")  # fmt: skip
    assert terminal.json(*words) == {
        "context": "live", "name_servers": "10.0.0.1:9876", "in_use": True,
    }  # fmt: skip
    terminal.do("context", "add", "test", "-n", "10.0.0.2:9876", "--no-use")
    assert terminal.rows("context", "list") == [
        {"context": "live", "name_servers": "10.0.0.1:9876", "in_use": True, "tls": False,
         "has_keys": True},
        {"context": "test", "name_servers": "10.0.0.2:9876", "in_use": False, "tls": False,
         "has_keys": False},
    ]  # fmt: skip
    path = tmp_path / "config" / "contexts.json"
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    terminal.do("context", "use", "test")
    assert terminal.rows("context", "list")[1]["in_use"] is True
    assert terminal.json("context", "remove", "test") == {"removed": "test", "in_use": None}
    missing = terminal.run("context", "use", "test")
    assert missing.code == 3
    assert "there is no context 'test' (known: live)" in missing.err
    assert terminal.run("context", "add", "bad", "-n", "nix").code == 2
    path.write_text("{")
    assert terminal.run("context", "list").code == 2


def test_which_cluster_is_meant(tmp_path: Path) -> None:
    contexts = Contexts(tmp_path / "contexts.json")

    def chosen(n: str | None = None, context: str | None = None, **environment: str) -> str:
        cluster = chosen_cluster(n, context, environment, contexts)
        return f"{cluster.context.name_servers} by {cluster.origin}"

    assert chosen() == "127.0.0.1:9876 by the default"
    assert chosen(NAMESRV_ADDR="n:1") == "n:1 by $NAMESRV_ADDR"
    both = {"a": Context(name_servers="a:1"), "b": Context(name_servers="b:1")}
    contexts.save(ContextFile(current="a", contexts=both))
    assert chosen(NAMESRV_ADDR="n:1") == "a:1 by context a"
    assert chosen(DOWNRANGE_CONTEXT="b") == "b:1 by context b"
    assert chosen(DOWNRANGE_NAME_SERVERS="d:1") == "d:1 by $DOWNRANGE_NAME_SERVERS"
    assert chosen(None, "b", DOWNRANGE_NAME_SERVERS="d:1") == "b:1 by context b"
    assert chosen("x:1", DOWNRANGE_NAME_SERVERS="d:1") == "x:1 by -n"
    assert chosen("x:1", "b") == "x:1 by context b"
    keys = {"DOWNRANGE_ACCESS_KEY": "k", "DOWNRANGE_SECRET_KEY": "s"}
    settings = chosen_cluster("x:1", None, keys, contexts).settings(2.0)
    assert settings.credentials is not None
    assert settings.api_timeout_s == 2.0


def test_the_config_folder_is_that_of_the_user(tmp_path: Path) -> None:
    home = Contexts.of_user({"XDG_CONFIG_HOME": str(tmp_path)})
    assert home.path == tmp_path / "downrange" / "contexts.json"
    assert Contexts.of_user({}).path == Path.home() / ".config" / "downrange" / "contexts.json"


# --- completion ----------------------------------------------------------------------------


def test_a_shell_completes_commands_and_options() -> None:
    def completed(line: str) -> list[str]:
        words = line.split(" ")
        environment = {
            "_DOWNRANGE_COMPLETE": "complete_bash",
            "COMP_WORDS": line,
            "COMP_CWORD": str(len(words) - 1),
        }
        return run_to_its_end(environment=environment).stdout.split()

    assert completed("downrange to") == ["topic"]
    assert set(completed("downrange topic ")) == {
        "list", "show", "create", "delete", "route", "stats",
    }  # fmt: skip
    assert completed("downrange offset reset --dr") == ["--dry-run"]
    assert completed("downrange dev --any") == ["--any-port"]
    assert completed("downrange namesrv --po") == ["--port"]
    assert completed("downrange broker --sto") == ["--store"]
    assert completed("downrange broker conf") == ["config"]
    script = run_to_its_end("completion", "bash").stdout
    assert "_DOWNRANGE_COMPLETE=complete_bash" in script


# --- small parts ---------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "target"),
    [
        ("beginning", Target(TargetKind.EARLIEST)),
        ("end", Target(TargetKind.LATEST)),
        ("42", Target(TargetKind.OFFSET, 42)),
        ("-7", Target(TargetKind.SHIFT, -7)),
        ("15m", Target(TargetKind.TIME, NOW_MS - 900_000)),
        ("1.5h", Target(TargetKind.TIME, NOW_MS - 5_400_000)),
        ("1700000000001", Target(TargetKind.TIME, 1_700_000_000_001)),
        ("2023-11-14T22:13:20Z", Target(TargetKind.TIME, NOW_MS)),
    ],
)
def test_places(text: str, target: Target) -> None:
    assert parse_place(text, NOW_MS) == target


@pytest.mark.parametrize("text", ["", "yesterday", "-x", "²", "2023-13-01"])
def test_what_is_no_place(text: str) -> None:
    with pytest.raises(WrongRequestError, match="is no place in a queue; write beginning, end"):
        parse_place(text, NOW_MS)
    with pytest.raises(WrongRequestError, match="is no time; write"):
        parse_time(text, NOW_MS)


def test_a_form_with_an_unknown_part_is_refused() -> None:
    for form in ("%x", "%", "\\x", "\\"):
        with pytest.raises(WrongRequestError, match="means nothing in a form; known: %b body"):
            LineForm(form)


@pytest.mark.parametrize(
    ("name", "value", "text"),
    [("a", None, "-"), ("a", True, "yes"), ("a_ratio", 0.75, "75%"), ("a", 1.25, "1.2"),
     ("a", ["x", "y"], "x, y"), ("a", {"k": "v"}, "k=v"), ("a", [], "-"), ("a", 0, "0"),
     ("a_ms", 0, "-"), ("a", "t", "t")],
)  # fmt: skip
def test_cells(name: str, value: None, text: str) -> None:
    assert cell(name, value) == text


def test_times_for_people() -> None:
    assert len(time_text(NOW_MS)) == len("2023-11-14 22:13:20.000")
    assert time_text(1 << 62) == str(1 << 62)


def test_a_table_on_a_terminal_is_drawn_by_rich(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    from downrange.app.commands.output import Form, Table, write  # noqa: PLC0415

    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    write(Table(("name", "count"), [{"name": "[x]", "count": 1}]), Form.TABLE)
    printed = capsys.readouterr().out
    assert "[x]" in printed
    assert "─" in printed


def test_the_table_of_commands_has_each_name_once() -> None:
    names = [row.name for row in cli.SUBCOMMANDS]
    assert len(names) == len(set(names))
    assert all(row.process or row.commands for row in cli.SUBCOMMANDS)
