"""Checks the queue offsets of pulled records against the pull.

The offset stands in the head of a record, which no checksum protects. One flipped bit there would
otherwise let a group commit an offset far beyond the end of the queue.
"""

from dataclasses import replace

from downrange.client.invalid_message import invalid_record
from downrange.client.message import ReceivedMessage
from downrange.client.record_reader import ReadRecords


def reject_misplaced(read: ReadRecords, begin: int, end: int) -> None:
    """Make messages invalid whose offsets do not ascend, or are not below `end`.

    An inner batch may start in front of `begin`. A message with a wrong offset gets the lowest one
    that it can have.
    """
    offsets = [message.queue_offset for message in read.messages]
    if offsets and (offsets[-1] >= end or offsets != list(range(offsets[0], offsets[-1] + 1))):
        _reject_each(read, begin, end)
    if read.invalid:
        read.invalid[:] = [
            one if begin <= one.queue_offset < end else replace(one, queue_offset=begin)
            for one in read.invalid
        ]


def _reject_each(read: ReadRecords, begin: int, end: int) -> None:
    kept: list[ReceivedMessage] = []
    next_offset = min([begin, *(message.queue_offset for message in read.messages[:1])])
    for message in read.messages:
        offset = message.queue_offset
        if next_offset <= offset < end:
            kept.append(message)
            next_offset = offset + 1
            continue
        message.queue_offset = next_offset
        next_offset += 1
        reason = f"the record claims queue offset {offset}, which is not where it was found"
        read.invalid.append(invalid_record(message, reason))
    read.messages[:] = kept
