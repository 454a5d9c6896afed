"""The command: files are checked and listed without Spark, and what is wrong has its exit code."""

from pathlib import Path

import pytest

from downrange.app import cli
from downrange.spark.pipelines.definition import KINDS
from downrange.spark.pipelines.toml_file import load

EXAMPLES = Path(__file__).parents[4] / "examples" / "pipelines"


def test_there_is_an_example_of_each_kind() -> None:
    kinds = {load(path, {}).kind for path in EXAMPLES.glob("*.toml")}
    assert kinds == set(KINDS)


def test_files_are_listed(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    (tmp_path / "a.toml").write_text((EXAMPLES / "archive.toml").read_text())
    (tmp_path / "b.toml").write_text("kind = 'nothing'")
    assert cli.main(["pipeline", "list", str(tmp_path)]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "a.toml: archive 'orders-archive' at 127.0.0.1:9876"
    assert lines[1].startswith("b.toml: wrong; kind is 'nothing'; there are archive")


def test_a_right_file_is_right(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["pipeline", "check", str(EXAMPLES / "transform.toml")]) == 0
    assert "transform 'orders-per-minute'" in capsys.readouterr().out


def test_a_wrong_file_is_not_run(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    file = tmp_path / "wrong.toml"
    file.write_text((EXAMPLES / "archive.toml").read_text().replace("path", "paht", 1))
    for action in ("check", "run"):
        assert cli.main(["pipeline", action, str(file)]) == 2
        assert "key 'paht' is unknown; allowed are" in capsys.readouterr().err
