"""Every snippet of docs/testing.md is a test that passes."""

import re
import subprocess
import sys
from pathlib import Path

PAGE = Path(__file__).resolve().parents[2] / "docs" / "testing.md"
SNIPPET = re.compile(r"^```python\n(.*?)^```$", re.MULTILINE | re.DOTALL)
SECONDS_MAX = 300.0


def test_the_snippets_of_the_page_pass_as_tests(tmp_path: Path) -> None:
    snippets = SNIPPET.findall(PAGE.read_text(encoding="utf-8"))
    text = "\n\n".join(snippets)
    (tmp_path / "test_page.py").write_text(text, encoding="utf-8")
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", "no:xdist"]
    done = subprocess.run(
        command, cwd=tmp_path, capture_output=True, text=True, timeout=SECONDS_MAX, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert f"{text.count('def test_')} passed" in done.stdout
    assert text.count("def test_") >= 12
