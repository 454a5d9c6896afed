"""Topics as brokers announce them, and plain lists and tables of the name server.

A topic travels as JSON or as a line, `name readQueues writeQueues perm filterType attributes`.
"""

import re
from typing import Final

import msgspec

from downrange.model.topics import TopicConfig
from downrange.protocol.bodies.json_body import Body, decode_body
from downrange.protocol.errors import LocalProtocolError, RemoteProtocolError
from downrange.protocol.integers import INT32_MAX, INT32_MIN
from downrange.protocol.json_text import write_json

_LINE: Final = re.compile(
    r"(?P<name>[^ ]+) (?P<read>[+-]?\d{1,10}) (?P<write>[+-]?\d{1,10}) (?P<perm>[+-]?\d{1,10})"
    r" (?P<filter>[^ ]+)(?: (?P<attributes>.*))?",
    re.ASCII | re.DOTALL,
)


class TopicList(Body, frozen=True, kw_only=True):
    """Names of topics; `broker_addr` is set where the answer is about one broker."""

    topic_list: tuple[str, ...] = ()
    broker_addr: str | None = None


class KvTable(Body, frozen=True, kw_only=True):
    """Text by text: one namespace of the name server, or the runtime facts of a broker."""

    table: dict[str, str] = msgspec.field(default_factory=dict)


def encode_topic_line(topic: TopicConfig) -> str:
    """Write the line form, which has no room for `topic_sys_flag` and `order`."""
    if " " in topic.topic_name:
        raise LocalProtocolError(f"a topic with a blank has no line form: {topic.topic_name!r}")
    return (
        f"{topic.topic_name} {topic.read_queue_nums} {topic.write_queue_nums} {topic.perm} "
        f"{topic.topic_filter_type} {write_json(topic.attributes).decode()}"
    )


def decode_topic_line(line: str) -> TopicConfig:
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
    return TopicConfig(
        topic_name=parts["name"],
        read_queue_nums=numbers[0],
        write_queue_nums=numbers[1],
        perm=numbers[2],
        topic_filter_type=parts["filter"],
        attributes=attributes,
    )
