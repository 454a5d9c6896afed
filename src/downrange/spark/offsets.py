"""Offsets of queues as values and as JSON: {"topic": {"broker": {"0": 123}}}.

An offset is the next one to read, never the last one read. The JSON has one form only (topics and
brokers sorted, queues by number), because Spark compares offsets as text.
"""

import json
from collections.abc import Iterable, Mapping

from downrange.model.topics import MessageQueue

Offsets = dict[MessageQueue, int]
OffsetsJson = dict[str, dict[str, dict[str, int]]]

EARLIEST = -2
LATEST = -1


class OffsetsError(ValueError):
    """A text that says no offsets; it says what is expected."""


def to_json(offsets: Mapping[MessageQueue, int]) -> OffsetsJson:
    """The one JSON form of some offsets."""
    shaped: OffsetsJson = {}
    for queue in sorted(offsets):
        brokers = shaped.setdefault(queue.topic, {})
        brokers.setdefault(queue.broker_name, {})[str(queue.queue_id)] = offsets[queue]
    return shaped


def from_json(shaped: object) -> Offsets:
    """The offsets of such JSON, already parsed; `OffsetsError` names what is wrong with it."""
    offsets: Offsets = {}
    for topic, brokers in _items(shaped, "the topics"):
        for broker, queues in _items(brokers, f"the brokers of topic {topic!r}"):
            for number, offset in _items(queues, f"the queues of broker {broker!r}"):
                queue = MessageQueue(topic, broker, _queue_id(number, topic))
                if isinstance(offset, bool) or not isinstance(offset, int) or offset < EARLIEST:
                    raise OffsetsError(
                        f"queue {number} of topic {topic!r} on {broker!r} has {offset!r}; an "
                        f"offset is a number from 0 on, -2 for the earliest or -1 for the latest"
                    )
                offsets[queue] = offset
    return offsets


def parse(text: str) -> Offsets:
    """The offsets of a JSON text."""
    return from_json(parse_json(text))


def parse_queues(text: str) -> frozenset[MessageQueue]:
    """The queues of {"topic": {"broker": [0, 1]}}."""
    queues: set[MessageQueue] = set()
    for topic, brokers in _items(parse_json(text), "the topics"):
        for broker, numbers in _items(brokers, f"the brokers of topic {topic!r}"):
            if not isinstance(numbers, list) or not numbers:
                raise OffsetsError(
                    f"broker {broker!r} of topic {topic!r} has {numbers!r}; a list of queue "
                    f"numbers like [0, 1] is expected"
                )
            queues |= {MessageQueue(topic, broker, _queue_id(one, topic)) for one in numbers}
    if not queues:
        raise OffsetsError("no queue is named")
    return frozenset(queues)


def parse_times(text: str) -> dict[str, int]:
    """The times of {"topic": milliseconds}."""
    times: dict[str, int] = {}
    for topic, time_ms in _items(parse_json(text), "the topics"):
        if isinstance(time_ms, bool) or not isinstance(time_ms, int) or time_ms < 0:
            raise OffsetsError(f"topic {topic!r} has {time_ms!r}; milliseconds since 1970 expected")
        times[topic] = time_ms
    return times


def parse_json(text: str) -> object:
    """JSON, with an error that can be shown to a user."""
    try:
        parsed: object = json.loads(text)
    except json.JSONDecodeError as error:
        raise OffsetsError(f"no JSON: {error}") from None
    return parsed


def count_between(start: Mapping[MessageQueue, int], end: Mapping[MessageQueue, int]) -> int:
    """How many offsets lie between two positions, over the queues of the second."""
    return sum(max(offset - start.get(queue, offset), 0) for queue, offset in end.items())


def topics_of(queues: Iterable[MessageQueue]) -> list[str]:
    """The topics of some queues, sorted, each once."""
    return sorted({queue.topic for queue in queues})


def _items(shaped: object, what: str) -> Iterable[tuple[str, object]]:
    if not isinstance(shaped, dict):
        raise OffsetsError(
            f"{what} are {shaped!r}; an object like "
            f'{{"topic": {{"broker-a": {{"0": 123}}}}}} is expected'
        )
    return shaped.items()


def _queue_id(number: object, topic: str) -> int:
    text = str(number)
    if isinstance(number, bool) or not (text.isascii() and text.isdecimal()):
        raise OffsetsError(f"topic {topic!r} has a queue {number!r}; queues are numbers from 0 on")
    return int(text)
