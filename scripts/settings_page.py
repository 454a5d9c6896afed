"""Writes docs/settings.md from the settings classes; a test says when it is out of date."""

import sys
from pathlib import Path
from typing import Final

from downrange.broker.settings import BrokerSettings, StoreFileSettings
from downrange.monitoring.settings import MonitoringSettings
from downrange.nameserver.settings import NameServerSettings
from downrange.remoting.settings import ConnectionSettings
from downrange.runtime.settings import SettingFacts, facts_of

PAGE: Final = Path(__file__).resolve().parent.parent / "docs" / "settings.md"
_INTRODUCTION: Final = """\
# Settings

For the property file of a server, under RocketMQ's names. In the environment a setting is
`DOWNRANGE_` and its name in capitals; [running.md](running.md) says which wins. Made by
`scripts/settings_page.py`.
"""
_HEAD: Final = "| setting | default | allowed | what it is |\n| --- | --- | --- | --- |\n"
_PARTS: Final = (
    ("Name server", facts_of(NameServerSettings)),
    ("Broker", facts_of(BrokerSettings)),
    ("Broker: its store", facts_of(StoreFileSettings)),
    ("Both: connections and requests", facts_of(ConnectionSettings)),
    ("Both: pages for operators' tools", facts_of(MonitoringSettings)),
)


def page() -> str:
    """The whole page."""
    return _INTRODUCTION + "".join(_table(title, facts) for title, facts in _PARTS)


def _table(title: str, facts: list[SettingFacts]) -> str:
    head = (
        f"\n## {title}\n\n| setting | default | allowed | what it is |\n| --- | --- | --- | --- |\n"
    )
    return head + "".join(
        f"| `{one.key}` | {_code(one.default)} | {one.allowed} | {one.about} |\n" for one in facts
    )


def _code(text: str) -> str:
    return f"`{text}`" if text else ""


def main() -> int:
    """Write the page."""
    PAGE.write_text(page(), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
