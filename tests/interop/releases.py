"""The jars of Apache RocketMQ, by their Maven coordinates, and our Java programs.

Both are kept below `.oracle/` in the repository, which is never committed.
"""

import hashlib
import os
import shutil
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

ORACLE_FOLDER = Path(__file__).resolve().parent / "oracle"
CACHE_FOLDER = Path(__file__).resolve().parents[2] / ".oracle"

MAVEN_SECONDS_MAX = 480.0
COMPILE_SECONDS_MAX = 120.0


class OracleError(Exception):
    """The real RocketMQ could not be fetched, compiled, started or stopped; the text says which."""


@dataclass(frozen=True, slots=True)
class Release:
    """One release of RocketMQ: which pom names its jars, which of our programs it can run."""

    version: str
    pom: str
    programs: tuple[str, ...]

    def jars(self) -> Path:
        """Folder with all jars of this release; the first call copies them with Maven."""
        pom = ORACLE_FOLDER / self.pom
        folder = CACHE_FOLDER / f"lib-{self.version}"
        stamp = folder / ".complete"
        wanted = hashlib.sha256(pom.read_bytes()).hexdigest()
        if stamp.exists() and stamp.read_text(encoding="ascii") == wanted:
            return folder
        _make_cache()
        shutil.rmtree(folder, ignore_errors=True)
        command = ["mvn", "-q", "-B", "-f", str(pom), "dependency:copy-dependencies"]
        _run([*command, f"-DoutputDirectory={folder}"], MAVEN_SECONDS_MAX)
        stamp.write_text(wanted, encoding="ascii")
        return folder

    def classes(self) -> Path:
        """Folder with our Java programs compiled for this release; done again when they change."""
        sources = [ORACLE_FOLDER / "java" / f"{name}.java" for name in self.programs]
        digest = hashlib.sha256(b"".join(source.read_bytes() for source in sources)).hexdigest()
        folder = CACHE_FOLDER / f"classes-{self.version}-{digest[:16]}"
        if folder.exists():
            return folder
        jars = self.jars()
        building = folder.with_name(f"{folder.name}.building-{os.getpid()}")
        shutil.rmtree(building, ignore_errors=True)
        building.mkdir()
        command = ["javac", "-nowarn", "-proc:none", "-encoding", "UTF-8", "-cp", f"{jars}/*"]
        _run([*command, "-d", str(building), *map(str, sources)], COMPILE_SECONDS_MAX)
        try:
            building.rename(folder)
        except OSError:  # another process was quicker
            shutil.rmtree(building)
        return folder

    def classpath(self) -> str:
        """What `java -cp` needs: our programs first, if there are any, then every jar."""
        jars = f"{self.jars()}/*"
        return f"{self.classes()}:{jars}" if self.programs else jars


APACHE_5_5 = Release(
    version="5.5.0",
    pom="pom.xml",
    programs=(
        "Lines",
        "NeutralIds",
        "RawSend",
        "Produce",
        "Dump",
        "ClientSession",
        "AdminSession",
    ),
)
PUBLISH_LATENCY = Release(version="5.5.0", pom="pom.xml", programs=("Lines", "PublishLatency"))
APACHE_TOOLS = Release(version="5.5.0-tools", pom="pom-tools.xml", programs=())
APACHE_PROXY = Release(version="5.5.0-proxy", pom="pom-proxy.xml", programs=())
APACHE_4_9_SERVERS = Release(version="4.9.7", pom="pom-servers-4.9.xml", programs=())
APACHE_4_9_CLIENT = Release(
    version="4.9.8", pom="pom-client-4.9.xml", programs=("Lines", "NeutralIds", "ClientSession")
)
_SCENARIO_PROGRAMS = (
    "Lines",
    "ScenarioWorld",
    "Seen",
    "SendScenarios",
    "TalkScenarios",
    "ConsumeScenarios",
    "OffsetScenarios",
    "MixedScenarios",
    "ClientScenarios",
)
ADMIN_5_5 = Release(
    version="5.5.0",
    pom="pom.xml",
    programs=("Lines", "NeutralIds", "ScenarioWorld", "AdminLoad", "AdminConsole"),
)
SCENARIOS_5_5 = Release(version="5.5.0", pom="pom.xml", programs=_SCENARIO_PROGRAMS)
SCENARIOS_4_9 = Release(version="4.9.8", pom="pom-client-4.9.xml", programs=_SCENARIO_PROGRAMS)


def _make_cache() -> None:
    CACHE_FOLDER.mkdir(exist_ok=True)
    (CACHE_FOLDER / ".gitignore").write_text("*\n", encoding="ascii")


def _run(command: Sequence[str], seconds_max: float) -> None:
    try:
        done = subprocess.run(
            command, capture_output=True, timeout=seconds_max, check=False, text=True
        )
    except FileNotFoundError:
        raise OracleError(f"{command[0]} is not installed: a JDK and Maven are needed") from None
    except subprocess.TimeoutExpired:
        raise OracleError(f"{command[0]} did not end in {seconds_max:.0f} s") from None
    if done.returncode != 0:
        raise OracleError(f"{command[0]} failed: {(done.stdout + done.stderr)[-4000:]}")
