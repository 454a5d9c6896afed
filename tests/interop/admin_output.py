"""What two clusters must print alike: words in lines, without what names a machine or a moment."""

import difflib
import re
from dataclasses import dataclass

from interop.admin_console import Printed
from interop.client_cluster import ClientCluster

LOOPBACK_HEX = "7F000001"
# In this order: a pattern may not eat what a later one is to see.
_MASKS = [
    (re.compile(pattern), name)
    for pattern, name in (
        (r"\b20\d\d-\d\d-\d\d \d\d:\d\d:\d\d(?:[,:.]\d+)?", "DATE"),
        (r"\b20\d{12}(?:\d{3})?\b", "DATE"),
        (r"\b1[6-9]\d{11}\b", "EPOCH"),
        (r"127\.0\.0\.1:\d+", "CLIENT"),
        (r"(?<![\d.])\d+\.\d+(?![\d.])", "FRACTION"),
        (r"@[0-9a-f]{5,8}\b", "@OBJECT"),
        (r"\$\$Lambda\S*", "LAMBDA"),
    )
]
_ERROR = re.compile(
    r"^(?:Caused by: )?([\w.$]+(?:Exception|Error))\b(?:: CODE: (\d+))?", re.MULTILINE
)
BODY_FILE = re.compile(r"^Message Body Path: +(\S+)$", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Facts:
    """What must be the same for both: lines of words, and which errors with which codes."""

    lines: list[str]
    errors: list[tuple[str, str]]

    def differences(self, other: "Facts") -> str:
        """Readable lines about what is not the same; empty if everything is."""
        mine, others = ([*facts.lines, *map(str, facts.errors)] for facts in (self, other))
        return "\n".join(difflib.unified_diff(mine, others, "mine", "apaches", n=0, lineterm=""))


def facts_of(
    printed: Printed, cluster: ClientCluster, label: str, *, ordered: bool, blank: str | None
) -> Facts:
    """Compare `printed` as these; `blank` is a pattern of what may differ in this command."""
    text = printed.output
    for own, name in (
        (cluster.broker, "BROKER"),
        (cluster.name_server, "NAMES"),
        (str(cluster.folder), "FOLDER"),
        (f"{LOOPBACK_HEX}{_port(cluster.broker):08X}", "BROKER-HEX"),
    ):
        text = text.replace(own, name)
    text = re.sub(rf"\b(billing|shop)-{label}\b", r"\1-LABEL", text)
    for mask, name in _MASKS:
        text = mask.sub(name, text)
    lines = [" ".join(line.split()) for line in text.splitlines()]
    if blank is not None:
        lines = [re.sub(blank, "BLANK", line) for line in lines]
    return Facts(lines if ordered else sorted(lines), _ERROR.findall(printed.errors))


def _port(address: str) -> int:
    return int(address.rpartition(":")[2])
