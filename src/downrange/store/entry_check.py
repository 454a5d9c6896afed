"""Says whether a queue entry points at the message that it stands for."""

from downrange.model.names import LMQ_PREFIX
from downrange.protocol.errors import RemoteProtocolError
from downrange.protocol.record import Record, decode_record, record_size
from downrange.store.commit_log import CommitLog
from downrange.store.consume_queue import FILLER_SIZE, HOLE_TAG, ConsumeQueue
from downrange.store.dispatch_entry import is_queued


def is_borne_out(
    log: CommitLog,
    queue: ConsumeQueue,
    queue_offset: int,
    entry: tuple[int, int, int] | None = None,
) -> bool:
    """Whether the record names this very queue, offset and place; holes and fillers need none.

    `entry` is the entry, if the caller has it.
    """
    physical_offset, size, tag_code = entry or queue.entry(queue_offset)
    if tag_code == HOLE_TAG or size == FILLER_SIZE:
        return True
    record = _record(log, physical_offset, size)
    if record is None or is_light(queue):
        return record is not None
    named = (record.topic, record.queue_id, record.queue_offset, is_queued(record.sys_flag))
    return named == (queue.topic.encode(), queue.queue_id, queue_offset, True)


def is_light(queue: ConsumeQueue) -> bool:
    """Whether the entries are of RocketMQ's light queues: records of other topics."""
    return queue.topic.startswith(LMQ_PREFIX)


def is_record(log: CommitLog, physical_offset: int, size: int) -> bool:
    """Whether a whole record of this size is here; its body is not looked at."""
    return _record(log, physical_offset, size) is not None


def last_borne_out(log: CommitLog, queue: ConsumeQueue) -> int | None:
    """From where the log must be read to know a queue's end; None if the last entry is right.

    That is where the newest message stands whose entry is right, or the log's beginning.
    """
    first = queue.first_offset
    last = queue.max_offset - 1
    if last >= first and is_borne_out(log, queue, last, queue.newest_entry()):
        return None  # nearly always, and without opening a file
    for queue_offset in range(last, first - 1, -1):
        physical_offset = queue.entry(queue_offset)[0]
        if is_borne_out(log, queue, queue_offset):
            return None if queue_offset == last else physical_offset
        older = queue.entry(max(queue_offset - 1, first))[0]
        if 0 <= physical_offset < log.min_offset and older < log.min_offset:
            return None  # retention has removed the messages
    return log.min_offset if last >= first else None


def _record(log: CommitLog, physical_offset: int, size: int) -> Record | None:
    view = log.view(physical_offset, size)
    if view is None:
        return None
    try:
        record = decode_record(view, check_crc=False)
    except RemoteProtocolError:
        return None
    is_here = record.physical_offset == physical_offset and record_size(view) == size
    return record if is_here else None
