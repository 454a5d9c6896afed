"""docs/cli.md and docs/cli-reference.md: every command runs, every option is there."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from processes import start_broker, start_name_server

ROOT = Path(__file__).resolve().parent.parent
BLOCK = re.compile(r"^```sh\n(.*?)^```$", re.MULTILINE | re.DOTALL)
SECONDS_MAX = 300.0
SETTINGS = {
    "mappedFileSizeCommitLog": str(16 << 20),
    "maxHashSlotNum": "1000",
    "maxIndexNum": "4000",
}


def test_the_reference_is_what_the_commands_say() -> None:
    script = ROOT / "scripts" / "cli_reference.py"
    done = subprocess.run(
        [sys.executable, str(script), "--print"],
        capture_output=True, text=True, timeout=SECONDS_MAX, check=True,
    )  # fmt: skip
    page = (ROOT / "docs" / "cli-reference.md").read_text(encoding="utf-8")
    assert done.stdout == page, "run scripts/cli_reference.py"


@pytest.mark.skipif(not Path("/bin/bash").exists(), reason="the page is written for bash")
def test_the_commands_of_the_page_run(tmp_path: Path) -> None:
    blocks = BLOCK.findall((ROOT / "docs" / "cli.md").read_text(encoding="utf-8"))
    assert len(blocks) >= 10
    with (
        start_name_server(tmp_path / "names") as names,
        start_broker(tmp_path / "broker", names.address, SETTINGS),
    ):
        # `head` may end before a command has printed all, which is no failure of either.
        script = "set -eu\n" + "\n".join(blocks)
        done = subprocess.run(
            ["/bin/bash", "-c", script],
            capture_output=True, text=True, timeout=SECONDS_MAX, check=False, cwd=tmp_path,
            env={
                "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
                "HOME": str(tmp_path),
                "DOWNRANGE_CONFIG_DIR": str(tmp_path / "config"),
                "DOWNRANGE_NAME_SERVERS": names.address,
            },
        )  # fmt: skip
    assert done.returncode == 0, (done.stdout[-2000:], done.stderr[-2000:])
    assert "Traceback" not in done.stderr
    for wanted in ("my first message", "4711", "would be reset", "2 messages sent to orders-copy"):
        assert wanted in done.stdout + done.stderr, wanted
