"""`py.typed` as users meet it: the public names, checked by mypy and by pyright from outside."""

import shutil
import subprocess
from pathlib import Path

import pytest

pytestmark = pytest.mark.interop
PUBLIC_API = Path(__file__).resolve().parents[1] / "api_types" / "public_api.py"
SECONDS_MAX = 300.0
# Strict, and a complaint that is expected and does not come is an error as well.
PYRIGHT = '{"typeCheckingMode": "strict", "reportUnnecessaryTypeIgnoreComment": "error"}'


def _check(python: Path, folder: Path, *arguments: str) -> str:
    shutil.copy(PUBLIC_API, folder)
    done = subprocess.run(
        [python, "-m", *arguments, PUBLIC_API.name],
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=SECONDS_MAX,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_mypy_knows_the_installed_package(python: Path, tmp_path: Path) -> None:
    text = _check(python, tmp_path, "mypy", "--strict", "--warn-unused-ignores")
    assert "no issues found in 1 source file" in text


def test_pyright_knows_the_installed_package(python: Path, tmp_path: Path) -> None:
    (tmp_path / "pyrightconfig.json").write_text(PYRIGHT)
    text = _check(python, tmp_path, "pyright", "--pythonpath", str(python))
    assert "0 errors, 0 warnings" in text


def test_pyright_would_complain(python: Path, tmp_path: Path) -> None:
    wrong = tmp_path / "wrong.py"
    wrong.write_text("import downrange\n\ndownrange.connect(nonsense=1)\n")
    done = subprocess.run(
        [python, "-m", "pyright", "--pythonpath", str(python), wrong.name],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=SECONDS_MAX,
        check=False,
    )
    assert 'No parameter named "nonsense"' in done.stdout, done.stdout + done.stderr
