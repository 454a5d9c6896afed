"""One line of JSON per fact about a store, whoever states it: Apache's client or our own store.

Java programs print these lines, and `StoreFacts` gathers the same facts from a downrange store, so
that two stores, or two views of one store, can be compared without knowing how each was read.
"""

import hashlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from ipaddress import ip_address

import msgspec

from downrange.protocol.compression import decompress_by_flag
from downrange.protocol.hosts import decode_host
from downrange.protocol.message_id import encode_message_id
from downrange.protocol.properties import decode_properties
from downrange.protocol.record import Record, decode_record, decode_records, encode_record
from downrange.protocol.sys_flag import COMPRESSED
from downrange.store.message_store import MessageStore

READ_COUNT = 2_000
READ_BYTES = 8 * 1024 * 1024
QUERY_COUNT_MAX = 32
DIFFERENCES_SHOWN_MAX = 5


class Fact(msgspec.Struct, frozen=True, kw_only=True, rename="camel", tag_field="kind"):
    """What all kinds of lines share."""


class MessageLine(Fact, frozen=True, kw_only=True, tag="message"):
    """A stored message as a consumer sees it, body unpacked."""

    topic: str
    queue_id: int
    queue_offset: int
    physical_offset: int
    store_size: int
    sys_flag: int
    born_timestamp: int
    store_timestamp: int
    born_host: str
    store_host: str
    reconsume_times: int
    prepared_transaction_offset: int
    flag: int
    body_crc: int
    body_sha1: str
    offset_msg_id: str
    properties: dict[str, str]

    @property
    def place(self) -> "Place":
        """Topic, queue and queue offset."""
        return self.topic, self.queue_id, self.queue_offset


class QueueLine(Fact, frozen=True, kw_only=True, tag="queue"):
    """The bounds of a queue, and at which offset a few points in time fall."""

    topic: str
    queue_id: int
    min_offset: int
    max_offset: int
    times: tuple[int, ...]
    offsets: tuple[int, ...]


class QueryLine(Fact, frozen=True, kw_only=True, tag="query"):
    """Physical offsets of the messages that a search by key or unique id found."""

    topic: str
    key: str
    offsets: tuple[int, ...]


class ReceiptLine(Fact, frozen=True, kw_only=True, tag="receipt"):
    """What a producer was told when its message was taken."""

    send: str
    topic: str
    queue_id: int
    queue_offset: int
    msg_id: str
    offset_msg_id: str | None
    delay_level: int
    body_crc: int
    body_sha1: str


Place = tuple[str, int, int]
QueueName = tuple[str, int]
Line = MessageLine | QueueLine | QueryLine | ReceiptLine
_decoder = msgspec.json.Decoder(Line)


def parse_line(text: str) -> Line:
    """The fact that a line states."""
    line: Line = _decoder.decode(text)
    return line


@dataclass(slots=True)
class StoreFacts:
    """Everything known about a store."""

    messages: dict[Place, MessageLine] = field(default_factory=dict[Place, MessageLine])
    queues: dict[tuple[str, int], QueueLine] = field(
        default_factory=dict[tuple[str, int], QueueLine]
    )
    queries: list[QueryLine] = field(default_factory=list[QueryLine])
    receipts: list[ReceiptLine] = field(default_factory=list[ReceiptLine])

    @classmethod
    def of_lines(cls, texts: Iterable[str]) -> "StoreFacts":
        """Gather what lines state."""
        facts = cls()
        for fact in map(parse_line, texts):
            match fact:
                case MessageLine():
                    assert fact.place not in facts.messages, f"{fact.place} is stated twice"
                    facts.messages[fact.place] = fact
                case QueueLine():
                    facts.queues[fact.topic, fact.queue_id] = fact
                case QueryLine():
                    facts.queries.append(fact)
                case ReceiptLine():
                    facts.receipts.append(fact)
        return facts

    @classmethod
    def of_store(cls, store: MessageStore) -> "StoreFacts":
        """Read every message of every queue through the store's own reader."""
        facts = cls()
        for queue in store.queues:
            offset = queue.min_offset
            while offset < queue.max_offset:
                result = store.read(queue.topic, queue.queue_id, offset, READ_COUNT, READ_BYTES)
                assert result.views, (queue.topic, queue.queue_id, offset, result.status)
                for view in result.views:
                    for record in decode_records(view):
                        line = line_of_record(record)
                        facts.messages[line.place] = line
                offset = result.next_offset
            facts.queues[queue.topic, queue.queue_id] = QueueLine(
                topic=queue.topic,
                queue_id=queue.queue_id,
                min_offset=queue.min_offset,
                max_offset=queue.max_offset,
                times=(),
                offsets=(),
            )
        return facts


def line_of_record(record: Record) -> MessageLine:
    """What Apache's client would say about a record."""
    body = record.body
    if record.sys_flag & COMPRESSED:
        body = decompress_by_flag(body, record.sys_flag)
    properties = decode_properties(record.properties)
    # Every pulling client adds these, so a message that was sent back is stored with them; what
    # the lines of Java programs say is without them.
    properties.pop("MIN_OFFSET", None)
    properties.pop("MAX_OFFSET", None)
    return MessageLine(
        topic=record.topic.decode(),
        queue_id=record.queue_id,
        queue_offset=record.queue_offset,
        physical_offset=record.physical_offset,
        store_size=len(encode_record(record)),
        # The client clears the bit when it unpacks a body.
        sys_flag=record.sys_flag & ~COMPRESSED,
        born_timestamp=record.born_timestamp,
        store_timestamp=record.store_timestamp,
        born_host=java_address(record.born_host),
        store_host=java_address(record.store_host),
        reconsume_times=record.reconsume_times,
        prepared_transaction_offset=record.prepared_offset,
        flag=record.flag,
        body_crc=record.body_crc,
        body_sha1=hashlib.sha1(body).hexdigest(),
        offset_msg_id=encode_message_id(record.store_host, record.physical_offset),
        properties=properties,
    )


def java_address(host: bytes) -> str:
    """Host and port in Java's spelling, which names all eight groups of an IPv6 address."""
    ip, port = decode_host(host)
    address = ip_address(ip)
    if address.version == 6:
        ip = ":".join(f"{int(group, 16):x}" for group in address.exploded.split(":"))
    return f"{ip}:{port}"


def assert_holds(found: Mapping[Place, MessageLine], wanted: Mapping[Place, MessageLine]) -> None:
    """Every wanted message is there and equal in every field."""
    different = [
        (line, found.get(place)) for place, line in wanted.items() if found.get(place) != line
    ]
    assert not different, (
        f"{len(different)} of {len(wanted)} messages differ, the first: "
        f"{different[:DIFFERENCES_SHOWN_MAX]}"
    )


def assert_answers(store: MessageStore, wanted: StoreFacts) -> None:
    """The store gives the same bounds, and the same answers to searches by time and by key."""
    for line in wanted.queues.values():
        queue = store.queues.get(line.topic, line.queue_id)
        if queue is None:
            assert line.min_offset == line.max_offset == 0, line
            continue
        assert queue.min_offset == line.min_offset, line
        assert queue.max_offset >= line.max_offset, line
        for time, offset in zip(line.times, line.offsets, strict=True):
            found = store.lookup.offset_by_time(line.topic, line.queue_id, time)
            assert found == offset or offset == line.max_offset <= found, (line, time, found)
    newest = max((line.physical_offset for line in wanted.messages.values()), default=0)
    for query in wanted.queries:
        result = store.lookup.query(query.topic, query.key, count_max=len(wanted.messages))
        offsets = {decode_record(view).physical_offset for view in result.records}
        assert offsets >= set(query.offsets), (query, offsets)
        # One match may stand for several (an id), and so may a full answer (a busy key).
        if 1 < len(query.offsets) < QUERY_COUNT_MAX:
            assert {offset for offset in offsets if offset <= newest} == set(query.offsets), query
