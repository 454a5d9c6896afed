"""The key-value table of a name server: text by key by namespace, in `kvConfig.json`.

{"configTable":{"ORDER_TOPIC_CONFIG":{"TopicTest":"broker-a:4"}}}
"""

from pathlib import Path
from typing import Final

import msgspec

from downrange.protocol.bodies.json_body import Body, decode_body
from downrange.protocol.errors import ProtocolError
from downrange.protocol.json_text import write_json
from downrange.runtime.disk import Disk, make_durable_directory
from downrange.runtime.durable_file import DurableFile

ORDER_NAMESPACE: Final = "ORDER_TOPIC_CONFIG"
"""Order topics: "broker-a:4;broker-b:4" by topic."""


# Each change writes the whole file, and registrations carry a namespace of it.
ENTRIES_MAX: Final = 10_000
KEY_CHARS_MAX: Final = 1_024  # of a namespace and of a key
CHARS_MAX: Final = 4 * 1024 * 1024  # of all namespaces, keys and values


class KvLimitError(Exception):
    """An entry that the table does not take; the text says which limit it exceeds."""


class KvFile(Body, frozen=True, kw_only=True):
    """The content of the file."""

    config_table: dict[str, dict[str, str]] = msgspec.field(default_factory=dict)


class KvTable:
    """Owned by the name server; when `put` or `delete` returns the change is durable.

    When one of them raises an `OSError` the table is as it was.
    """

    def __init__(self, disk: Disk, path: Path) -> None:
        self._disk = disk
        self._file = DurableFile(
            disk, path, lambda data: decode_body(KvFile, data).config_table, (ProtocolError,)
        )
        self._table: dict[str, dict[str, str]] = {}

    def load(self) -> None:
        """Read the file; without one the table is empty."""
        self._table = self._file.load() or {}

    def get(self, namespace: str, key: str) -> str | None:
        """The value of a key."""
        return self._table.get(namespace, {}).get(key)

    def namespace(self, name: str) -> dict[str, str] | None:
        """All keys of a namespace, sorted; None if there never was one."""
        entries = self._table.get(name)
        return None if entries is None else dict(sorted(entries.items()))

    def put(self, namespace: str, key: str, value: str) -> None:
        """Set a key; `KvLimitError` if that would be too much."""
        self._check_limits(namespace, key, value)
        entries = self._table.get(namespace, {})
        self._replace(namespace, {**entries, key: value})

    def delete(self, namespace: str, key: str) -> None:
        """Remove a key; the namespace stays, even if it is empty, as in RocketMQ."""
        entries = self._table.get(namespace)
        if entries is not None and key in entries:
            self._replace(namespace, {k: v for k, v in entries.items() if k != key})

    def _check_limits(self, namespace: str, key: str, value: str) -> None:
        for what, text in (("namespace", namespace), ("key", key)):
            if len(text) > KEY_CHARS_MAX:
                raise KvLimitError(
                    f"{what} {text[:40]!r}... has {len(text)} characters, the limit is"
                    f" {KEY_CHARS_MAX}"
                )
        entries = {
            (name, known): text
            for name, keys in self._table.items()
            for known, text in keys.items()
        }
        entries[namespace, key] = value
        if len(entries) > ENTRIES_MAX:
            raise KvLimitError(f"the table has {ENTRIES_MAX} entries, which is its limit")
        chars = sum(len(name) + len(known) + len(text) for (name, known), text in entries.items())
        if chars > CHARS_MAX:
            raise KvLimitError(
                f"the table would have {chars} characters, the limit is {CHARS_MAX}; delete some"
            )

    def _replace(self, namespace: str, entries: dict[str, str]) -> None:
        table = {**self._table, namespace: entries}
        # These changes are rare and made by operators, so the loop may wait for the disk here.
        make_durable_directory(self._disk, self._file.path.parent)
        self._file.replace(write_json({"configTable": _sorted(table)}))
        self._table = table


def _sorted(table: dict[str, dict[str, str]]) -> dict[str, dict[str, str]]:
    return {name: dict(sorted(entries.items())) for name, entries in sorted(table.items())}
