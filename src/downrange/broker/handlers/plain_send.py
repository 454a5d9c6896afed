"""The send of a plain message or batch, straight from its frame into the log.

Most messages need no decision: their topic is known and open, and their text asks for no delay, no
transaction and no retry; in a batch none can. They go this way, which gives the same result as
`handlers.send` with fewer steps. Whatever is not plain, and whatever the store refuses, is left to
`handlers.send`.
"""

from collections.abc import Callable, Mapping, Sequence
from itertools import islice
from typing import Protocol

from downrange.broker.overload import Gate
from downrange.broker.rates import PutTimes
from downrange.broker.send_reply import SendReply
from downrange.broker.stats import BrokerStats
from downrange.broker.store_keeper import StoreKeeper
from downrange.model.topics import TopicConfig
from downrange.protocol.command import Command, Serialization
from downrange.protocol.errors import RemoteProtocolError
from downrange.protocol.frame import Frame
from downrange.protocol.plain_send import PlainSendReader
from downrange.protocol.properties import split_key_bytes
from downrange.protocol.request_codes import RequestCode
from downrange.protocol.sys_flag import BORN_HOST_V6, STORE_HOST_V6, TRANSACTION_MASK
from downrange.remoting.connection import Connection
from downrange.runtime.clock import Clock
from downrange.store.appended import Appended
from downrange.store.appender import HOST_V4_BYTES, PlainMessage
from downrange.store.errors import AppendRefusedError, PutStatus
from downrange.store.message_store import MessageStore

# Names, or beginnings of names, that ask for something else than storing the message.
_SPECIAL = (
    b"POP_CK", b"MSG_REGION", b"TRACE_ON", b"CLUSTER", b"TRAN_MSG", b"DELAY", b"TIMER_",
    b"WAIT\x01false", b"UNIQ_KEY", b"KEYS\x01",
)  # fmt: skip
_NOT_PLAIN = TRANSACTION_MASK | BORN_HOST_V6 | STORE_HOST_V6
_UNIQUE = b"UNIQ_KEY\x01"
_UNIQUE_BYTES = len(_UNIQUE)
_KEYS = b"KEYS\x01"
_VALUE_END = 2
_RESTS_MAX = 4096

# What the answer to a send repeats of it: encoding, opaque, queue id, unique id.
Asked = tuple[int, int, int, bytes]
# Tag code and keys, but for the unique id; None where the text is not plain.
Found = tuple[int, tuple[bytes, ...]] | None
_UNKNOWN: Found = (-1, ())


class Topics(Protocol):
    """What a plain send needs of the topic table."""

    def get(self, topic: str) -> TopicConfig | None:
        """The topic's configuration."""
        ...


class PlainSendHandler:
    """Takes frames before they are decoded. Owned by the event loop.

    `admitted` holds the topics that `handlers.send` found good, with their configuration then.
    """

    def __init__(
        self,
        topics: Topics,
        admitted: Mapping[str, TopicConfig],
        store: MessageStore,
        keeper: StoreKeeper,
        stats: BrokerStats,
        times: PutTimes,
        reply: SendReply,
        clock: Clock,
        gate: Gate,
        *,
        additions: bytes,
    ) -> None:
        self._topic = topics.get
        self._admitted = admitted
        self._read = PlainSendReader().read
        self._append = store.append
        self._append_run = store.append_run
        self._append_batch = store.append_batch
        self._tag_and_keys = store.entries.tag_and_keys
        self._note_append = keeper.note_append
        self._wait_durable = keeper.wait_durable
        self._is_sync = keeper.is_sync
        self._add_put = stats.add_put
        self._times = times
        self._reply = reply
        self._clock = clock
        self._gate = gate
        self._additions = additions
        # But for its unique id a producer's messages mostly have the same text.
        self._rests: dict[bytes, Found] = {}

    def serve(
        self,
        frames: list[Frame],
        start: int,
        connection: Connection,
        out: list[bytes | memoryview],
    ) -> int:
        """Store messages and answer, from the frame at `start` on until one is not for here.

        Returns how many frames were taken. Messages go into the log together, a batch alone.
        """
        if self._gate.is_closed or len(connection.host) != HOST_V4_BYTES:
            return 0
        read, rests, additions = self._read, self._rests, self._additions
        taken = queue_count = 0
        run_topic = ""
        run: list[PlainMessage] = []
        asked: list[Asked] = []
        for frame in islice(frames, start, start + self._gate.room):
            encoding, body = frame.encoding, frame.body
            send = read(encoding, frame.header)
            if send is None or body is None:
                break
            opaque, topic, queue_id, sys_flag, born_timestamp, flag, again, text, is_batch = send
            if topic != run_topic or is_batch:
                if run:
                    stored = self._store_run(run_topic, run, asked, connection, out)
                    taken += stored
                    if stored < len(run):
                        return taken
                    run, asked = [], []
                run_topic, queue_count = topic, self._queue_count(topic)
            if not 0 <= queue_id < queue_count or sys_flag & _NOT_PLAIN:
                break
            begin = text.find(_UNIQUE)
            end = text.find(b"\x02", begin)
            unique_key = text[begin + _UNIQUE_BYTES : end]
            if begin < 0 or not unique_key or (begin and text[begin - 1] != _VALUE_END):
                break
            if is_batch:  # its text says nothing else that counts
                where = (topic, queue_id, sys_flag, born_timestamp)
                request = (encoding, opaque, queue_id, unique_key)
                return taken + self._store_batch(where, body, request, connection, out)
            rest = text[:begin] + text[end + 1 :] if end >= 0 else b"UNIQ_KEY"
            found = rests.get(rest, _UNKNOWN)
            if found is _UNKNOWN:
                found = self._judge(rest)
            if found is None:
                break
            text += additions if text[-1] == _VALUE_END else b"\x02" + additions
            run.append((
                queue_id, body, text, sys_flag, flag, born_timestamp, again, found[0],
                [unique_key, *found[1]],
            ))  # fmt: skip
            asked.append((encoding, opaque, queue_id, unique_key))
        if len(run) == 1:
            return taken + self._store_one(run_topic, run[0], asked[0], connection, out)
        if run:
            taken += self._store_run(run_topic, run, asked, connection, out)
        return taken

    def _queue_count(self, topic: str) -> int:
        """How many queues take plain messages of this topic; none if it takes no plain ones."""
        config = self._topic(topic)
        if (
            config is None
            or self._admitted.get(topic) is not config
            or topic[0] == "%"
            or config.topic_filter_type == "MULTI_TAG"
        ):
            return 0
        return config.write_queue_nums

    def _store_run(
        self,
        topic: str,
        run: list[PlainMessage],
        asked: list[Asked],
        connection: Connection,
        out: list[bytes | memoryview],
    ) -> int:
        """Store messages of a topic; returns how many, and answers those."""
        placed = self._append_run(topic, run, connection.host)
        if not placed:
            return 0  # nothing was done; the long way makes room or finds the words
        self._note_append()
        self._add_put(topic, len(placed), placed[-1].end_offset - placed[0].physical_offset)
        if self._is_sync:
            self._answer_later(
                [(one, [where]) for one, where in zip(asked, placed, strict=False)], connection
            )
        else:
            self._times.add(0, len(placed))  # no wait was in between
            now = self._reply.now
            for (encoding, opaque, queue_id, unique_key), where in zip(asked, placed, strict=False):
                out.append(now(encoding, opaque, where, queue_id, unique_key))
        return len(placed)

    def _store_one(
        self,
        topic: str,
        message: PlainMessage,
        asked: Asked,
        connection: Connection,
        out: list[bytes | memoryview],
    ) -> int:
        """What `_store_run` does, for less than the beginning of a run costs."""
        queue_id, body, text, sys_flag, flag, born_timestamp, again, tag_code, keys = message
        try:
            placed = self._append(
                topic, queue_id, body, text, sys_flag, flag, born_timestamp, connection.host,
                again, 0, (tag_code, keys),
            )  # fmt: skip
        except AppendRefusedError:
            return 0
        self._note_append()
        self._add_put(topic, 1, placed[1])
        if self._is_sync:
            self._answer_later([(asked, [placed])], connection)
        else:
            self._times.add(0)
            encoding, opaque, _, unique_key = asked
            out.append(self._reply.now(encoding, opaque, placed, queue_id, unique_key))
        return 1

    def _store_batch(
        self,
        where: tuple[str, int, int, int],
        batch: bytes,
        asked: Asked,
        connection: Connection,
        out: list[bytes | memoryview],
    ) -> int:
        topic, queue_id, sys_flag, born_timestamp = where
        try:
            placed = self._append_batch(
                topic, queue_id, batch, sys_flag, born_timestamp, connection.host
            )
        except (AppendRefusedError, RemoteProtocolError):
            return 0  # as for a single message
        self._note_append()
        self._add_put(topic, len(placed), placed[-1].end_offset - placed[0].physical_offset)
        if self._is_sync:
            self._answer_later([(asked, placed)], connection)
        else:
            self._times.add(0)
            out.append(self._batch_reply(asked, placed))
        return 1

    def _batch_reply(self, asked: Asked, placed: Sequence[Appended]) -> bytes:
        encoding, opaque, queue_id, unique_key = asked
        return self._reply.now_batch(encoding, opaque, placed, queue_id, unique_key)

    def _answer_later(
        self, stored: list[tuple[Asked, Sequence[Appended]]], connection: Connection
    ) -> None:
        """Answer all of them together, when the last is durable."""
        last = stored[-1][1][-1]

        def answer(status: PutStatus) -> None:
            self._times.add(self._clock.wall_ms() - last.store_timestamp, len(stored))
            reply = self._batch_reply if status is PutStatus.PUT_OK else self._failure(status)
            connection.reply([reply(asked, placed) for asked, placed in stored])

        self._wait_durable(last.end_offset, answer, len(stored))

    def _failure(self, status: PutStatus) -> Callable[[Asked, Sequence[Appended]], bytes]:
        def reply(asked: Asked, placed: Sequence[Appended]) -> bytes:
            encoding, opaque, queue_id, unique_key = asked
            request = Command(
                code=RequestCode.SEND_MESSAGE_V2,
                opaque=opaque,
                serialization=Serialization(encoding),
            )
            return self._reply.later(request, status, placed, queue_id, unique_key)

        return reply

    def _judge(self, rest: bytes) -> Found:
        """What a text says that was not seen before; keys are new in every message."""
        at = rest.rfind(_KEYS)
        if at < 0:
            return self._remember(rest)
        end = rest.find(b"\x02", at)
        keys = rest[at + len(_KEYS) : end]
        if end < 0 or not keys or (at and rest[at - 1] != _VALUE_END):
            return None
        keyless = rest[:at] + rest[end + 1 :]
        found = self._rests.get(keyless, _UNKNOWN)
        if found is _UNKNOWN:
            found = self._remember(keyless)
        return found and (found[0], (*split_key_bytes(keys), *found[1]))

    def _remember(self, rest: bytes) -> Found:
        is_plain = not any(name in rest for name in _SPECIAL)
        found = self._tag_and_keys(rest) if is_plain else None
        if len(self._rests) < _RESTS_MAX:
            self._rests[rest] = found
        return found
