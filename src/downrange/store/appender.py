"""Takes messages into the log: the checks, the record, the place, in this order.

Messages come one by one, as a batch, or as a run: those of one read that ask for nothing special.
This is the hot path. It passes plain values by position, makes one record and one dispatch entry a
message, and raises only for what is not taken; then nothing of the message is in the log.
"""

from itertools import accumulate
from struct import Struct
from zlib import crc32

from downrange.protocol.batch import BatchColumns, cut_batch
from downrange.protocol.properties import PROPERTIES_BYTES_MAX
from downrange.protocol.record import (
    CRC_MASK,
    HEAD_MIDDLES,
    HEAD_START,
    HEADS,
    TOPIC_BYTES_MAX_V1,
    topic_field,
)
from downrange.protocol.record_crc import reserve_record_crc, seal_record, seal_records
from downrange.protocol.sys_flag import STORE_HOST_V6, TRANSACTION_MASK
from downrange.runtime.clock import Clock
from downrange.store.appended import Appended, AppendedBatch
from downrange.store.commit_log import BLANK_BYTES_MIN, CommitLog
from downrange.store.consume_queue import ConsumeQueue
from downrange.store.dispatch_entry import DispatchEntry, EntryReader, is_queued
from downrange.store.dispatcher import Dispatcher
from downrange.store.errors import AppendRefusedError, PutStatus
from downrange.store.queue_table import QueueTable
from downrange.store.record_columns import LENGTH_BYTES, RecordColumns
from downrange.store.settings import StoreSettings

RETRY_PREFIX = "%RETRY%"
RETRY_TOPIC_BYTES_MAX = 255
HOST_V4_BYTES = 8
NO_HOST = bytes(HOST_V4_BYTES)
HEAD_START_BYTES = HEAD_START.size
_pack_length = Struct(">H").pack
_new_tuple = tuple.__new__  # what a NamedTuple's constructor does, without its detour


# What `append_run` takes: a message that is in no transaction and came from an IPv4 host. Queue id,
# body, properties, system flag, flag, born time, born host, reconsume times, tag code, keys.
PlainMessage = tuple[int, bytes, bytes, int, int, int, bytes, int, int, list[bytes]]


class Appender:
    """Appends single messages and batches. Owned by one thread.

    `refusal` says why nothing is taken at the moment, or None.
    """

    def __init__(
        self,
        log: CommitLog,
        queues: QueueTable,
        dispatcher: Dispatcher,
        entries: EntryReader,
        clock: Clock,
        settings: StoreSettings,
    ) -> None:
        self._log = log
        self._queues = queues
        self._dispatcher = dispatcher
        self._entries = entries
        self._wall_ns = clock.wall_ns
        self._monotonic_s = clock.monotonic_s
        self._store_host = settings.store_host
        self._store_flag = STORE_HOST_V6 if len(settings.store_host) > HOST_V4_BYTES else 0
        self._busy_until_s = 0.0
        self.change(settings)
        self._seals = settings.append_record_crc
        self._size_max = settings.segment_bytes - BLANK_BYTES_MIN
        self._topics: dict[str, tuple[int, bytes]] = {}
        self.refusal: AppendRefusedError | None = None
        self._unplaced = (0, 0)  # size of a message that found no room, end of the log then
        self.store_timestamp = 0

    def change(self, settings: StoreSettings) -> None:
        """Follow other limits from now on; what files depend on stays."""
        self._settings = settings
        self._busy_s = settings.page_cache_busy_ms / 1000
        self._body_bytes_max = settings.message_bytes_max

    def append(
        self,
        topic: str,
        queue_id: int,
        body: bytes,
        properties: bytes,
        sys_flag: int = 0,
        flag: int = 0,
        born_timestamp: int = 0,
        born_host: bytes = NO_HOST,
        reconsume_times: int = 0,
        prepared_offset: int = 0,
        found: tuple[int, list[bytes]] | None = None,
    ) -> Appended:
        """Put one message; `AppendRefusedError` if it is not taken.

        `found` is its tag code and its keys, if the caller has read the text already.
        """
        if self.refusal is not None:
            raise self.refusal.with_traceback(None)  # else it would remember every sender
        magic, name = self._topics.get(topic) or self._admit_topic(topic)
        if self._seals:
            properties = reserve_record_crc(properties)
        if len(properties) > PROPERTIES_BYTES_MAX:
            raise _properties_too_long(properties)
        rest = b"".join((body, name, _pack_length(len(properties)), properties))
        sys_flag |= self._store_flag
        head = HEADS[(sys_flag >> 4) & 3]
        body_bytes = len(body)
        size = head.size + len(rest)
        if body_bytes > self._body_bytes_max or size > self._size_max or self._busy_until_s:
            self._check(size, body_bytes)
        try:
            physical_offset = self._log.place(size)
        except OSError as error:
            raise self._no_room(size, error) from error
        queue = self._queues.ensure(topic, queue_id)
        queued = not sys_flag & TRANSACTION_MASK or is_queued(sys_flag)
        queue_offset = queue.next_offset if queued else 0
        begun_s = self._monotonic_s()
        stored_ms = self._wall_ns() // 1_000_000
        packed = head.pack(
            size, magic, crc32(body) & CRC_MASK, queue_id, flag, queue_offset, physical_offset,
            sys_flag, born_timestamp, born_host, stored_ms, self._store_host, reconsume_times,
            prepared_offset, body_bytes,
        )  # fmt: skip
        if self._seals:
            rest = seal_record(packed, rest)
            properties = rest[-len(properties) :]
        self._log.write(packed, rest)
        queue.next_offset += queued
        self.store_timestamp = stored_ms
        tag_code, keys = found or self._entries.tag_code_and_keys(
            topic, sys_flag, properties, stored_ms
        )
        self._dispatcher.offer((
            queue, queued, queue_offset, physical_offset, size, tag_code, stored_ms, keys,
            properties,
        ))  # fmt: skip
        self._note_time(begun_s)
        return _new_tuple(Appended, (physical_offset, size, queue_offset, stored_ms))

    def append_run(self, topic: str, run: list[PlainMessage]) -> list[Appended]:
        """Put messages side by side, up to the first that asks for more than a copy.

        Returns where those were put that were; the next one is for `append`, which makes room,
        admits topics and says why it takes nothing.
        """
        log = self._log
        last = log.last
        known = self._topics.get(topic)
        if self.refusal is not None or self._busy_until_s or last is None or known is None:
            return []
        if self._seals:
            return self._append_each(topic, run)
        magic, name = known
        physical_offset = last.base_offset + last.write_position
        end_max = last.base_offset + min(last.size, last.reserved) - BLANK_BYTES_MIN
        body_bytes_max = self._body_bytes_max
        store_host, store_flag = self._store_host, self._store_flag
        head = HEADS[(store_flag >> 4) & 3]
        pack_head, fixed_bytes = head.pack, head.size + len(name) + LENGTH_BYTES
        begun_s = self._monotonic_s()
        stored_ms = self._wall_ns() // 1_000_000
        queues: dict[int, ConsumeQueue] = {}
        parts: list[bytes] = []
        entries: list[DispatchEntry] = []
        appended: list[Appended] = []
        for (
            queue_id, body, text, sys_flag, flag, born_timestamp, born_host, reconsume_times,
            tag_code, keys,
        ) in run:  # fmt: skip
            body_bytes = len(body)
            text_bytes = len(text)
            size = fixed_bytes + body_bytes + text_bytes
            if (
                body_bytes > body_bytes_max
                or text_bytes > PROPERTIES_BYTES_MAX
                or physical_offset + size > end_max
            ):
                break
            queue = queues.get(queue_id)
            if queue is None:
                queue = queues[queue_id] = self._queues.ensure(topic, queue_id)
            queue_offset = queue.next_offset
            queue.next_offset = queue_offset + 1
            parts += (
                pack_head(
                    size, magic, crc32(body) & CRC_MASK, queue_id, flag, queue_offset,
                    physical_offset, sys_flag | store_flag, born_timestamp, born_host, stored_ms,
                    store_host, reconsume_times, 0, body_bytes,
                ),
                body,
                name,
                _pack_length(text_bytes),
                text,
            )  # fmt: skip
            entries.append((
                queue, True, queue_offset, physical_offset, size, tag_code, stored_ms, keys, text
            ))  # fmt: skip
            place = (physical_offset, size, queue_offset, stored_ms)
            appended.append(_new_tuple(Appended, place))
            physical_offset += size
        if appended:
            self._commit(parts[0], b"".join(parts[1:]), entries, stored_ms, begun_s)
        return appended

    def _append_each(self, topic: str, run: list[PlainMessage]) -> list[Appended]:
        """What `append_run` does, for records with a checksum over all of them."""
        appended = []
        for (
            queue_id, body, text, sys_flag, flag, born_timestamp, born_host, reconsume_times,
            tag_code, keys,
        ) in run:  # fmt: skip
            try:
                put = self.append(
                    topic, queue_id, body, text, sys_flag, flag, born_timestamp, born_host,
                    reconsume_times, 0, (tag_code, keys),
                )  # fmt: skip
            except AppendRefusedError:
                break
            appended.append(put)
        return appended

    def append_batch(
        self,
        topic: str,
        queue_id: int,
        batch: bytes,
        sys_flag: int = 0,
        born_timestamp: int = 0,
        born_host: bytes = NO_HOST,
    ) -> AppendedBatch:
        """Put the messages of a batch body side by side, all of them or none.

        `RemoteProtocolError` if the body is not one.
        """
        if self.refusal is not None:
            raise self.refusal.with_traceback(None)
        columns = cut_batch(batch)
        if self._seals:
            columns = _with_room_for_crcs(columns)
        count = len(columns[0])
        magic, name = self._admit_batch(topic, count)
        sys_flag |= self._store_flag
        layout = (sys_flag >> 4) & 3
        records = RecordColumns(columns, HEADS[layout].size + len(name) + LENGTH_BYTES)
        sizes, texts = records.sizes, records.texts
        size = sum(sizes)
        # Room for all of them in one file, or none is taken.
        if len(batch) > self._body_bytes_max or size > self._size_max or self._busy_until_s:
            self._check(size, sum(map(len, columns[1])))
        try:
            physical_offset = self._log.place(size)
        except OSError as error:
            raise self._no_room(size, error) from error
        queue = self._queues.ensure(topic, queue_id)
        queued = is_queued(sys_flag)
        first = queue.next_offset if queued else 0
        queue_offsets = range(first, first + count) if queued else [0] * count
        begun_s = self._monotonic_s()
        stored_ms = self._wall_ns() // 1_000_000
        middle = HEAD_MIDDLES[layout].pack(
            sys_flag, born_timestamp, born_host, stored_ms, self._store_host, 0, 0
        )
        offsets = records.offsets_from(physical_offset)
        data = records.pack(magic, name, queue_id, queue_offsets, offsets, middle)
        if self._seals:
            data = seal_records(data, sizes)
            ends = accumulate(sizes)
            texts = [data[end - len(text) : end] for end, text in zip(ends, texts, strict=True)]
        tag_codes, keys = self._entries.of_batch(topic, sys_flag, texts, stored_ms)
        entries = list(
            zip(
                [queue] * count, [queued] * count, queue_offsets, offsets, sizes, tag_codes,
                [stored_ms] * count, keys, texts, strict=True,
            )
        )  # fmt: skip
        queue.next_offset += count if queued else 0
        self._commit(data[:HEAD_START_BYTES], data[HEAD_START_BYTES:], entries, stored_ms, begun_s)
        return AppendedBatch(offsets, sizes, queue_offsets, stored_ms)

    def _commit(
        self,
        head: bytes,
        rest: bytes,
        entries: list[DispatchEntry],
        stored_ms: int,
        begun_s: float,
    ) -> None:
        """Write records side by side, the very first head last, and have them dispatched.

        That they share topic and store time is how recovery knows those of a torn write.
        """
        self._log.write(head, rest)
        self.store_timestamp = stored_ms
        self._dispatcher.offer_all(entries)
        self._note_time(begun_s)

    def _admit_batch(self, topic: str, count: int) -> tuple[int, bytes]:
        """Magic and name field of a topic that takes a batch of so many messages."""
        if not count:
            raise AppendRefusedError(PutStatus.BATCH_ILLEGAL, "the batch holds no message")
        magic, name = self._topics.get(topic) or self._admit_topic(topic)
        if len(name) > TOPIC_BYTES_MAX_V1 + 1 or topic.startswith(RETRY_PREFIX):
            raise AppendRefusedError(
                PutStatus.BATCH_ILLEGAL, f"topic {topic!r} takes no batches: send one by one"
            )
        return magic, name

    def _note_time(self, begun_s: float) -> None:
        """After an append that took long the next ones are refused for as long."""
        now_s = self._monotonic_s()
        if now_s - begun_s > self._busy_s:
            self._busy_until_s = now_s + self._busy_s

    def _check(self, size: int, body_bytes: int) -> None:
        """Refuse what is too large, and everything while memory or disk are behind."""
        if body_bytes > self._body_bytes_max:
            raise AppendRefusedError(
                PutStatus.BODY_TOO_LARGE,
                f"the body has {body_bytes} bytes, the limit is {self._body_bytes_max}",
            )
        if size > self._size_max:
            raise AppendRefusedError(
                PutStatus.BODY_TOO_LARGE,
                f"{size} bytes do not fit into a log file of {self._settings.segment_bytes} bytes",
            )
        if self._busy_until_s:
            self._refuse_while_busy()

    def no_room(self) -> AppendRefusedError | None:
        """Why the last message found no room, if there still is none; asks the disk again.

        A message that was taken since then is proof enough, so taking one costs nothing here.
        """
        size, end_offset = self._unplaced
        if not size or end_offset != self._log.max_offset:
            return None
        try:
            self._log.place(size)
        except OSError as error:
            return self._no_room(size, error)
        self._unplaced = (0, 0)
        return None

    def _no_room(self, size: int, error: OSError) -> AppendRefusedError:
        self._unplaced = (size, self._log.max_offset)
        return AppendRefusedError(
            PutStatus.SEGMENT_FAILED,
            f"no room for {size} bytes in {self._log.chain.directory}: {error}",
        )

    def _refuse_while_busy(self) -> None:
        left_s = self._busy_until_s - self._monotonic_s()
        if left_s > 0:
            raise AppendRefusedError(
                PutStatus.PAGE_CACHE_BUSY,
                f"the last append waited more than {self._settings.page_cache_busy_ms} ms for "
                f"memory or disk; try again in {round(left_s * 1000) + 1} ms",
            )
        self._busy_until_s = 0.0

    def _admit_topic(self, topic: str) -> tuple[int, bytes]:
        name = topic.encode()
        is_retry = topic.startswith(RETRY_PREFIX) and self._settings.long_topics_enabled
        limit = RETRY_TOPIC_BYTES_MAX if is_retry else TOPIC_BYTES_MAX_V1
        if not 0 < len(name) <= limit:
            raise AppendRefusedError(
                PutStatus.TOPIC_TOO_LONG,
                f"topic {topic[:40]!r} has {len(name)} bytes, it must have 1 to {limit}",
            )
        self._topics[topic] = topic_field(name)
        return self._topics[topic]


def _with_room_for_crcs(columns: BatchColumns) -> BatchColumns:
    flags, bodies, texts = columns
    texts = [*map(reserve_record_crc, texts)]
    longest = max(texts, key=len, default=b"")
    if len(longest) > PROPERTIES_BYTES_MAX:
        raise _properties_too_long(longest)
    return flags, bodies, texts


def _properties_too_long(properties: bytes) -> AppendRefusedError:
    return AppendRefusedError(
        PutStatus.PROPERTIES_TOO_LONG,
        f"the property text has {len(properties)} bytes, the limit is {PROPERTIES_BYTES_MAX}",
    )
