"""Finds topics that have messages and are not in the topic table, and enters them again.

A topic takes messages only once it is in topics.json, and its deletion removes its queues, so a
queue with messages and without a topic means that the table was lost: the file was deleted, was
replaced by an older backup, or is that of another broker. Without its topic nobody can read it.
"""

import logging
from collections.abc import Iterable
from typing import Protocol

from downrange.broker.topic_table import TopicTable
from downrange.model.names import InvalidNameError, check_topic, is_lmq
from downrange.model.topics import QUEUE_NUMS_MAX

_log = logging.getLogger(__name__)


class Queue(Protocol):
    """What is asked of a consume queue."""

    topic: str
    queue_id: int
    min_offset: int
    max_offset: int


def restore_topics(topics: TopicTable, queues: Iterable[Queue]) -> list[str]:
    """Enter the topics that have messages and are missing; returns their names.

    A restored topic gets a queue for each queue id up to the highest that has messages, and may be
    read and written. A topic that is in the table stays as it is: queues beyond its number are
    those of an operator who has reduced it, because new queues are durable before they are used.
    """
    highest: dict[str, int] = {}
    for queue in queues:
        if queue.max_offset > queue.min_offset:
            highest[queue.topic] = max(queue.queue_id, highest.get(queue.topic, 0))
    restored = []
    for topic, queue_id in sorted(highest.items()):
        config = topics.get(topic)
        if config is not None:
            if queue_id >= max(config.read_queue_nums, config.write_queue_nums):
                _log.warning(
                    "topic %s: queue %d has messages, but the topic has %d read queues; raise "
                    "readQueueNums to read them",
                    topic,
                    queue_id,
                    config.read_queue_nums,
                )
            continue
        if not _is_restorable(topics, topic, queue_id):
            continue
        topics.create_for_send_back(topic, queue_id + 1)
        restored.append(topic)
        _log.warning(
            "topic %s: has messages but was missing in topics.json; restored with %d queues, "
            "check their number and delete the topic again if it was deleted on purpose",
            topic,
            queue_id + 1,
        )
    return restored


def _is_restorable(topics: TopicTable, topic: str, queue_id: int) -> bool:
    """Whether a topic of a user could have this name and this queue."""
    if topics.is_system(topic) or is_lmq(topic) or queue_id >= QUEUE_NUMS_MAX:
        return False
    try:
        check_topic(topic)
    except InvalidNameError as error:
        _log.warning("a queue with messages belongs to no valid topic: %s", error)
        return False
    return True
