"""The JSON tables under `config/`: topics and groups, in exactly RocketMQ 5.5's form.

    topics.json              TopicTable
    subscriptionGroup.json   GroupTable

Offsets are in offset_tables.py, the tables of pop, timer and transactions in feature_tables.py.
Reading is lenient: unquoted keys, numbers as text, unknown and missing fields, tables of older
releases. What a 5.5 broker wrote comes out again byte for byte.
"""

from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

import msgspec
from msgspec import Struct, field

from downrange.model.topics import DataVersion, SubscriptionGroupConfig, TopicConfig
from downrange.protocol.errors import ProtocolError, RemoteProtocolError
from downrange.protocol.loose_json import JsonValue, read_json
from downrange.protocol.pretty_json import write_pretty_json
from downrange.runtime.disk import Disk
from downrange.runtime.durable_file import DurableFile

TOPICS_FILE = "topics.json"
GROUPS_FILE = "subscriptionGroup.json"

Table = TypeVar("Table", bound=Struct)


class TopicTable(Struct, frozen=True, kw_only=True, rename="camel"):
    """All topics of a broker."""

    data_version: DataVersion = field(default_factory=DataVersion)
    topics: dict[str, TopicConfig] = field(default_factory=dict, name="topicConfigTable")


class GroupTable(Struct, frozen=True, kw_only=True, rename="camel"):
    """All consumer groups of a broker; `forbidden` has bits by group and topic."""

    data_version: DataVersion = field(default_factory=DataVersion)
    forbidden: dict[str, dict[str, int]] = field(default_factory=dict, name="forbiddenTable")
    groups: dict[str, SubscriptionGroupConfig] = field(
        default_factory=dict, name="subscriptionGroupTable"
    )


class TableFile(DurableFile[Table]):
    """A table in its file; `load` as in `DurableFile`, `save` takes the table."""

    def __init__(
        self,
        disk: Disk,
        path: Path,
        table: type[Table],
        encode: Callable[[Table], bytes] = write_pretty_json,
        *,
        member: str | None = None,
    ) -> None:
        """A file without `member` is damaged, not empty: it would be saved as empty next."""
        super().__init__(
            disk, path, lambda data: decode_table(data, table, member), (ProtocolError,)
        )
        self._encode = encode

    def save(self, table: Table) -> None:
        """Make the table durable."""
        self.replace(self._encode(table))


def topics_file(disk: Disk, config_path: Path) -> TableFile[TopicTable]:
    """The file of the topics."""
    return TableFile(disk, config_path / TOPICS_FILE, TopicTable, member="topicConfigTable")


def groups_file(disk: Disk, config_path: Path) -> TableFile[GroupTable]:
    """The file of the consumer groups."""
    return TableFile(disk, config_path / GROUPS_FILE, GroupTable, member="subscriptionGroupTable")


def decode_table(data: bytes, table: type[Table], member: str | None = None) -> Table:
    """A table from the text of its file; `RemoteProtocolError` says what is wrong and where."""
    value = read_json(data)
    if member is not None and not (isinstance(value, dict) and member in value):
        raise RemoteProtocolError(f"{table.__name__}: there is no {member} in it")
    try:
        return msgspec.convert(_without_nulls(value), table, strict=False)
    except msgspec.ValidationError as error:
        raise RemoteProtocolError(f"{table.__name__}: {error}") from error


def _without_nulls(value: JsonValue) -> object:
    """A field that is null is a field that is missing, as it is for Java's setters."""
    match value:
        case dict():
            return {k: _without_nulls(v) for k, v in value.items() if v is not None}
        case list():
            return [_without_nulls(item) for item in value]
        case _:
            return value
