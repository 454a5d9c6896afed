"""Our cluster and Apache's under the same commands of RocketMQ's `mqadmin`."""

import re
import time
from dataclasses import dataclass
from pathlib import Path

from interop.admin_console import AdminConsole, Printed
from interop.admin_output import BODY_FILE, Facts, facts_of
from interop.client_cluster import ClientCluster

# A name server hears of a change after the broker has answered, an offset comes after the message.
SETTLE_SECONDS_MAX = 20.0
RETRY_SECONDS = 0.2
_NAME_AND_VALUE = re.compile(r"^(\w\S*?) *[:=] *(.*?) *$", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class TwoClusters:
    """Ours and Apache's, loaded alike, and the tool that looks at both."""

    console: AdminConsole
    clusters: dict[str, ClientCluster]

    def run(self, label: str, *words: str) -> Printed:
        """Run a command against one cluster; LABEL and BROKER stand for what differs."""
        cluster = self.clusters[label]
        own = [word.replace("BROKER", cluster.broker).replace("LABEL", label) for word in words]
        printed = self.console.mqadmin(cluster.name_server, *own)
        for written in BODY_FILE.findall(printed.output):  # always below /tmp/rocketmq
            Path(written).unlink(missing_ok=True)
        return printed

    def do(self, *words: str, ordered: bool = True, blank: str | None = None) -> str:
        """Run a command that changes something, once against each; both must print the same."""
        mine, apaches = self._facts(words, ordered=ordered, blank=blank)
        assert mine == apaches, mine.differences(apaches)
        assert not mine.errors, mine.errors
        return "\n".join(mine.lines)

    def look(self, *words: str, ordered: bool = True, blank: str | None = None) -> Facts:
        """Run a command that changes nothing until both print the same."""
        deadline = time.monotonic() + SETTLE_SECONDS_MAX
        while True:
            mine, apaches = self._facts(words, ordered=ordered, blank=blank)
            if mine == apaches or time.monotonic() > deadline:
                assert mine == apaches, mine.differences(apaches)
                return mine
            time.sleep(RETRY_SECONDS)

    def look_until(self, wanted: str, *words: str, ordered: bool = True) -> None:
        """Look until both print something wanted too."""
        deadline = time.monotonic() + SETTLE_SECONDS_MAX
        while wanted not in "\n".join(self.look(*words, ordered=ordered).lines):
            assert time.monotonic() < deadline, (wanted, words)
            time.sleep(RETRY_SECONDS)

    def _facts(self, words: tuple[str, ...], *, ordered: bool, blank: str | None) -> list[Facts]:
        return [
            facts_of(self.run(label, *words), cluster, label, ordered=ordered, blank=blank)
            for label, cluster in self.clusters.items()
        ]

    def tables(self, *words: str) -> list[dict[str, str]]:
        """Run a command that prints names and values; unmasked, ours first."""
        found = []
        for label, cluster in self.clusters.items():
            text = self.run(label, *words).output.replace(str(cluster.folder), "FOLDER")
            found.append(dict(_NAME_AND_VALUE.findall(text)))
        return found
