"""Reads ranges of queues over the wire, for a task of Spark: blocking, pull by pull.

As soon as the head of an answer says where to go on, the next pull is sent; its answer comes in
while the body of this one is received and decoded. Our broker answers with up to a megabyte when it
is asked for a bulk; Apache's answers within its limits (32 messages unless it is told otherwise),
and then several answers become one Arrow batch.
"""

import logging
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from downrange.client.errors import BrokerRefusal, RocketMQError
from downrange.protocol.command import Command
from downrange.protocol.errors import ProtocolError
from downrange.protocol.headers.fields import decode_header, encode_header
from downrange.protocol.headers.pull import BULK_FIELD, PullRequest, PullResponse
from downrange.protocol.request_codes import RequestCode
from downrange.protocol.response_codes import ResponseCode
from downrange.spark.arrow_records import RecordDecoder
from downrange.spark.cluster import Cluster
from downrange.spark.columns import INVALID_REASON, SINK_ID
from downrange.spark.invalid_records import OPTION, InvalidMessages, InvalidRecordError
from downrange.spark.link import Link
from downrange.spark.planning import QueueRange
from downrange.spark.read_options import ReadOptions
from downrange.spark.record_heads import read_heads, record_starts
from downrange.spark.sink_ids import SeenSinkIds

_log = logging.getLogger(__name__)

SUBSCRIPTION_FLAG: Final = 4
# Answers are joined up to this before they are decoded; about what Spark likes in one Arrow batch.
DECODED_BYTES: Final = 1024 * 1024
_ANSWERS: Final = frozenset(
    {
        ResponseCode.SUCCESS,
        ResponseCode.PULL_NOT_FOUND,
        ResponseCode.PULL_RETRY_IMMEDIATELY,
        ResponseCode.PULL_OFFSET_MOVED,
    }
)
_NOTHING: Final = memoryview(b"")


class DataLossError(RocketMQError):
    """Messages that were to be read are gone."""


class InvalidMessageError(RocketMQError):
    """A message that cannot be decoded; trying again does not help."""


@dataclass(frozen=True, slots=True)
class _Records:
    """Records end to end, the delta of their offsets, and the offsets that they were pulled for."""

    data: memoryview
    delta: int
    start: int
    end: int


class RangeReader:
    """Reads ranges one after the other. Belongs to one thread of one task; close it."""

    def __init__(
        self, options: ReadOptions, *, sleep: Callable[[float], None] = time.sleep
    ) -> None:
        self._options = options
        self._cluster = Cluster(options.connecting, sleep=sleep)
        self._sleep = sleep
        extra = [name for name in self._hidden() if name not in options.fields]
        self._decoder = RecordDecoder(
            (*options.fields, *extra),
            include_properties=options.include_properties,
            check_crc=options.check_crc,
            invalid=options.invalid_messages,
        )

    def _hidden(self) -> list[str]:
        """Columns that rows are chosen by, whether they are shown or not."""
        wanted = ["queueOffset"]
        if self._options.wanted_tags:
            wanted.append("tags")
        if self._options.drop_duplicates:
            wanted.append(SINK_ID)
        return wanted

    def close(self) -> None:
        """Close the connections."""
        self._cluster.close()

    def read(self, wanted: Sequence[QueueRange]) -> Iterator[pa.RecordBatch]:
        """The messages of the ranges, in their order."""
        for one in wanted:
            seen = SeenSinkIds() if self._options.drop_duplicates else None
            pulls = _Pulls(self._options, self._cluster, one, self._sleep)
            for records in _joined(pulls):
                for batch in self._decoded(records, one):
                    chosen = self._chosen(batch, one, seen)
                    if chosen.num_rows:
                        yield chosen.select(list(self._options.fields))

    def mean_bytes(self, one: QueueRange) -> float | None:
        """What a record of the range takes, by its first answer; None if there is none."""
        for records in _Pulls(self._options, self._cluster, one, self._sleep):
            if len(records.data):
                try:
                    return len(records.data) / len(record_starts(records.data))
                except ProtocolError:
                    return None  # a task that reads it says what is wrong
        return None

    def _decoded(self, records: "_Records", one: QueueRange) -> Iterator[pa.RecordBatch]:
        try:
            heads = read_heads(records.data, record_starts(records.data))
        except ProtocolError as error:
            yield from self._decoded_alone(records, one, str(error))
            return
        try:
            yield from self._decoder.batches(
                records.data, heads, broker_name=one.broker_name, offset_delta=records.delta
            )
        except InvalidRecordError as error:
            raise _invalid(one, f"at offset {error.queue_offset}", str(error)) from error
        except ProtocolError as error:
            raise RocketMQError(f"messages of {_text(one)}: {error}") from error

    def _decoded_alone(
        self, records: "_Records", one: QueueRange, reason: str
    ) -> Iterator[pa.RecordBatch]:
        """Records among which one hides where the next one starts: each is pulled alone."""
        if records.end - records.start == 1:
            if self._options.invalid_messages is InvalidMessages.FAIL:
                raise _invalid(one, f"at offset {records.start}", reason)
            yield self._decoder.unreadable(one.queue, records.start, reason)
            return
        for offset in range(records.start, records.end):
            single = replace(one, start=offset, end=offset + 1)
            for alone in _Pulls(self._options, self._cluster, single, self._sleep):
                # A broker that filters may answer with a later one, which has its turn yet.
                if len(alone.data) and alone.end == offset + 1:
                    yield from self._decoded(replace(alone, start=offset), one)

    def _chosen(
        self, batch: pa.RecordBatch, one: QueueRange, seen: SeenSinkIds | None
    ) -> pa.RecordBatch:
        offsets = batch.column("queueOffset").to_numpy(zero_copy_only=False)
        if len(offsets) and not (offsets[0] >= one.start and offsets[-1] < one.end):
            # A broker that filters looks further than it was asked to, and so do inner batches.
            batch = batch.filter(pa.array((offsets >= one.start) & (offsets < one.end)))
        if self._options.wanted_tags:
            # The broker compares hashes, which different tags may share.
            wanted = pa.array(sorted(self._options.wanted_tags), pa.string())
            batch = batch.filter(pc.is_in(batch.column("tags"), wanted))
        if seen is not None:
            batch = batch.filter(pa.array(seen.is_first(batch.column(SINK_ID).to_pylist())))
        return batch


class _Pulls:
    """The answers for one range, one pull ahead; goes on after a failure where it was."""

    def __init__(
        self,
        options: ReadOptions,
        cluster: Cluster,
        one: QueueRange,
        sleep: Callable[[float], None],
    ) -> None:
        self._options = options
        self._cluster = cluster
        self._range = one
        self._sleep = sleep
        self._offset = one.start
        self._idle = 0  # answers in a row that did not bring us further
        self._link: Link | None = None
        self._under_way: tuple[int, int] | None = None  # number of the pull, its offset

    def __iter__(self) -> Iterator["_Records"]:
        what = f"reading {_text(self._range)}"
        while self._offset < self._range.end:
            yield self._cluster.tried(self._next, what)

    def _next(self) -> "_Records":
        try:
            return self._answer()
        except RocketMQError:
            self._under_way = None
            if self._link is not None:
                self._cluster.drop(self._link.address)
                self._link = None
            raise

    def _answer(self) -> "_Records":
        link = self._link
        if link is None:
            queue = self._range.queue
            self._cluster.refresh(queue.topic)
            link = self._link = self._cluster.link(self._cluster.address(queue))
        if self._under_way is None or self._under_way[1] != self._offset:
            self._send(link, self._offset)
        assert self._under_way is not None
        opaque, _ = self._under_way
        self._under_way = None
        head = link.receive_head(opaque)
        if head.code not in _ANSWERS:
            link.receive_body()
            raise BrokerRefusal(head.code, head.remark or "", link.address)
        answer = decode_header(PullResponse, head.ext_fields)
        following = self._following(head, answer)
        if self._offset < following < self._range.end:
            self._send(link, following)
        body = link.receive_body()
        start, self._offset = self._offset, following
        is_found = head.code == ResponseCode.SUCCESS
        data = body if is_found else _NOTHING
        return _Records(data, answer.offset_delta or 0, start, following)

    def _send(self, link: Link, offset: int) -> None:
        options, one = self._options, self._range
        kind, expression = options.expression
        header = PullRequest(
            consumer_group=options.pull_group,
            topic=one.topic,
            queue_id=one.queue_id,
            queue_offset=offset,
            max_msg_nums=min(options.pull_batch_size, one.end - offset),
            sys_flag=SUBSCRIPTION_FLAG,
            commit_offset=0,
            suspend_timeout_millis=0,
            subscription=expression,
            sub_version=0,
            expression_type=kind,
            broker_name=one.broker_name,
        )
        fields = {**encode_header(header), BULK_FIELD: "true"}
        self._under_way = (link.send(RequestCode.PULL_MESSAGE, fields), offset)

    def _following(self, head: Command, answer: PullResponse) -> int:
        """Where to go on after this answer."""
        following = answer.next_begin_offset
        if head.code in {ResponseCode.SUCCESS, ResponseCode.PULL_RETRY_IMMEDIATELY}:
            if following > self._offset:
                self._idle = 0
                return following
        elif self._offset < answer.min_offset:
            return self._after_gap(self._offset, min(answer.min_offset, self._range.end))
        elif head.code == ResponseCode.PULL_NOT_FOUND and (
            self._offset < following <= answer.max_offset
        ):
            return following  # a file of the queue is missing, the next one is there
        # Else an operator may have moved the group, which moves nothing here: ask again.
        return self._waited(answer)

    def _waited(self, answer: PullResponse) -> int:
        """Nothing came although something should be there: perhaps it comes yet."""
        retries = self._options.connecting.retries
        if self._idle >= retries:
            if self._offset < answer.max_offset:
                raise RocketMQError(
                    f"{_text(self._range)}: the broker answers {retries + 1} times that there is "
                    f"nothing at offset {self._offset}, though the queue reaches from "
                    f"{answer.min_offset} to {answer.max_offset}"
                )
            return self._after_gap(self._offset, self._range.end)
        self._idle += 1
        self._sleep(self._options.connecting.retry_interval_s)
        return self._offset

    def _after_gap(self, start: int, end: int) -> int:
        text = (
            f"{_text(self._range)}: {end - start} messages from offset {start} to {end} are not "
            f"there any more; they have expired, or the topic was deleted"
        )
        if self._options.fail_on_data_loss:
            raise DataLossError(
                f"{text}. Set the option failOnDataLoss to false to go on without them"
            )
        _log.warning("%s; going on at %d", text, end)
        return end


def _joined(pulls: _Pulls) -> Iterator[_Records]:
    """Answers put together until decoding them pays."""
    waiting: list[_Records] = []
    size = 0
    for records in pulls:
        if waiting and records.delta != waiting[0].delta:
            yield _together(waiting)
            waiting, size = [], 0
        if len(records.data):
            waiting.append(records)
            size += len(records.data)
        if size >= DECODED_BYTES // 2:
            yield _together(waiting)
            waiting, size = [], 0
    if waiting:
        yield _together(waiting)


def _together(parts: list[_Records]) -> _Records:
    if len(parts) == 1:
        return parts[0]
    data = np.concatenate([np.frombuffer(part.data, np.uint8) for part in parts]).data
    return _Records(data, parts[0].delta, parts[0].start, parts[-1].end)


def _invalid(one: QueueRange, where: str, reason: str) -> InvalidMessageError:
    return InvalidMessageError(
        f"the message {where} of {_text(one)} cannot be decoded: {reason}. Set the option "
        f"{OPTION} to null to read it with a null body and the reason in column {INVALID_REASON}"
    )


def _text(one: QueueRange) -> str:
    return f"queue {one.queue_id} of topic {one.topic!r} on {one.broker_name!r}"
