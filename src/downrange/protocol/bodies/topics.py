"""Topics as brokers announce them, and plain lists and tables of the name server."""

import re
from typing import Final

import msgspec

from downrange.protocol.bodies.json_body import Body, decode_body
from downrange.protocol.errors import LocalProtocolError, RemoteProtocolError
from downrange.protocol.integers import INT32_MAX, INT32_MIN, Int32, Int64
from downrange.protocol.json_text import write_json

_LINE: Final = re.compile(
    r"(?P<name>[^ ]+) (?P<read>[+-]?\d{1,10}) (?P<write>[+-]?\d{1,10}) (?P<perm>[+-]?\d{1,10})"
    r" (?P<filter>[^ ]+)(?: (?P<attributes>.*))?",
    re.ASCII | re.DOTALL,
)


class DataVersion(Body, frozen=True, kw_only=True):
    """Tells an older copy of a table from a newer one."""

    state_version: Int64 = 0
    timestamp: Int64 = 0
    counter: Int64 = 0


class TopicConfig(Body, frozen=True, kw_only=True):
    """One topic on one broker."""

    topic_name: str
    read_queue_nums: Int32 = 16
    write_queue_nums: Int32 = 16
    perm: Int32 = 6
    topic_filter_type: str = "SINGLE_TAG"
    topic_sys_flag: Int32 = 0
    order: bool = False
    attributes: dict[str, str] | None = msgspec.field(default_factory=dict)

    def to_line(self) -> str:
        """Write the line form, which has no room for `topic_sys_flag` and `order`."""
        if " " in self.topic_name:
            raise LocalProtocolError(f"a topic with a blank has no line form: {self.topic_name!r}")
        attributes = "" if self.attributes is None else write_json(self.attributes).decode()
        return (
            f"{self.topic_name} {self.read_queue_nums} {self.write_queue_nums} {self.perm} "
            f"{self.topic_filter_type} {attributes}"
        )

    @classmethod
    def from_line(cls, line: str) -> "TopicConfig":
        """Read the line form; attributes that cannot be read are dropped, as Java does."""
        parts = _LINE.fullmatch(line)
        if parts is None:
            raise RemoteProtocolError(f"not a topic line: {line[:80]!r}")
        numbers = [int(parts[name]) for name in ("read", "write", "perm")]
        if not all(INT32_MIN <= number <= INT32_MAX for number in numbers):
            raise RemoteProtocolError(f"topic line with a number over 32 bits: {line[:80]!r}")
        attributes: dict[str, str] = {}
        if parts["attributes"]:
            try:
                attributes = decode_body(dict[str, str], parts["attributes"].encode())
            except RemoteProtocolError:
                attributes = {}
        return cls(
            topic_name=parts["name"],
            read_queue_nums=numbers[0],
            write_queue_nums=numbers[1],
            perm=numbers[2],
            topic_filter_type=parts["filter"],
            attributes=attributes,
        )


class TopicList(Body, frozen=True, kw_only=True):
    """Names of topics; `broker_addr` is set where the answer is about one broker."""

    topic_list: tuple[str, ...] = ()
    broker_addr: str | None = None


class KvTable(Body, frozen=True, kw_only=True):
    """Text by text: one namespace of the name server, or the runtime facts of a broker."""

    table: dict[str, str] = msgspec.field(default_factory=dict)
