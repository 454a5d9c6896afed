"""The send of a plain message or batch, straight from its frame into the log.

Most messages need no decision: their topic is known and open, and their text asks for no delay, no
transaction and no retry; in a batch none can. They go this way, which gives the same result as
`handlers.send` with fewer steps. Whatever is not plain, and whatever the store refuses, is left to
`handlers.send`.
"""

from collections.abc import Callable, Mapping, Sequence
from itertools import islice
from typing import Protocol

from downrange.broker.batch_slices import SLICED_BODY_BYTES
from downrange.broker.overload import Gate
from downrange.broker.rates import PutTimes
from downrange.broker.send_reply import SendReply
from downrange.broker.stats import BrokerStats
from downrange.broker.store_keeper import StoreKeeper
from downrange.model.topics import TopicConfig
from downrange.protocol.command import Command, Serialization
from downrange.protocol.errors import RemoteProtocolError
from downrange.protocol.plain_send import PlainSendReader
from downrange.protocol.properties import split_key_bytes
from downrange.protocol.request_codes import RequestCode
from downrange.protocol.sys_flag import BORN_HOST_V6, STORE_HOST_V6, TRANSACTION_MASK
from downrange.remoting.turn import Asker
from downrange.runtime.clock import Clock, monotonic_ms
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

# What the answer to a send repeats of it, and who gets it: encoding, opaque, queue id, unique id.
Asked = tuple[int, int, int, bytes, Asker]
# Tag code and keys, but for the unique id; None where the text is not plain.
Found = tuple[int, tuple[bytes, ...]] | None
_UNKNOWN: Found = (-1, ())


class Topics(Protocol):
    """What a plain send needs of the topic table."""

    def get(self, topic: str) -> TopicConfig | None:
        """The topic's configuration."""
        ...


class _Gathered:
    """Messages of one topic that are about to be stored, and how many more there may be."""

    __slots__ = ("asked", "queue_count", "room", "run", "topic")

    def __init__(self, room: int) -> None:
        self.room = room
        self.topic = ""
        self.queue_count = 0
        self.run: list[PlainMessage] = []
        self.asked: list[Asked] = []


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

    def serve(self, askers: Sequence[Asker]) -> None:
        """Store the messages that these peers have sent, and answer.

        Messages of a topic go into the log together, whoever has sent them; a batch alone.
        """
        if self._gate.is_closed:
            return
        gathered = _Gathered(self._gate.room)
        for asker in askers:
            if len(asker.host) == HOST_V4_BYTES and not self._gather(asker, gathered):
                return  # the store has taken a part; the next one is for the long way
        self._store(gathered)

    def _gather(self, asker: Asker, gathered: _Gathered) -> bool:
        """Add the messages of a peer up to the first that is not plain.

        What cannot be added to what was gathered has that stored first; False if not all of it was.
        """
        read, rests, additions, host = self._read, self._rests, self._additions, asker.host
        run, asked = gathered.run, gathered.asked
        for frame in islice(asker.frames, asker.position, asker.position + gathered.room):
            encoding, body = frame.encoding, frame.body
            send = read(encoding, frame.header)
            if send is None or body is None:
                break
            opaque, topic, queue_id, sys_flag, born_timestamp, flag, again, text, is_batch = send
            if topic != gathered.topic or is_batch:
                if not self._store(gathered):
                    return False
                gathered.topic, gathered.queue_count = topic, self._queue_count(topic)
            if not 0 <= queue_id < gathered.queue_count or sys_flag & _NOT_PLAIN:
                break
            begin = text.find(_UNIQUE)
            end = text.find(b"\x02", begin)
            unique_key = text[begin + _UNIQUE_BYTES : end]
            if begin < 0 or not unique_key or (begin and text[begin - 1] != _VALUE_END):
                break
            request = (encoding, opaque, queue_id, unique_key, asker)
            gathered.room -= 1
            if is_batch:  # its text says nothing else that counts
                if not self._store_batch(topic, sys_flag, born_timestamp, body, request):
                    break
                continue
            rest = text[:begin] + text[end + 1 :] if end >= 0 else b"UNIQ_KEY"
            found = rests.get(rest, _UNKNOWN)
            if found is _UNKNOWN:
                found = self._judge(rest)
            if found is None:
                break
            text += additions if text[-1] == _VALUE_END else b"\x02" + additions
            run.append((
                queue_id, body, text, sys_flag, flag, born_timestamp, host, again, found[0],
                [unique_key, *found[1]],
            ))  # fmt: skip
            asked.append(request)
        return True

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

    def _store(self, gathered: _Gathered) -> bool:
        """Store what was gathered, answer what was stored of it; False if that is not all."""
        run, asked = gathered.run, gathered.asked
        count = len(run)
        if not count:
            return True
        topic = gathered.topic
        placed = self._append_run(topic, run) if count > 1 else self._append_one(topic, run[0])
        if placed:
            self._note_append()
            self._add_put(topic, len(placed), placed[-1].end_offset - placed[0].physical_offset)
            if self._is_sync:
                for request in asked[: len(placed)]:
                    request[4].position += 1
                self._answer_later(
                    [(one, [where]) for one, where in zip(asked, placed, strict=False)]
                )
            else:
                self._times.add(0, len(placed))  # no wait was in between
                now = self._reply.now
                for (encoding, opaque, queue_id, unique_key, asker), where in zip(
                    asked, placed, strict=False
                ):
                    asker.answers.append(now(encoding, opaque, where, queue_id, unique_key))
                    asker.position += 1
        run.clear()
        asked.clear()
        return len(placed) == count

    def _append_one(self, topic: str, message: PlainMessage) -> list[Appended]:
        """What `append_run` does, for less than the beginning of a run costs."""
        queue_id, body, text, sys_flag, flag, born_timestamp, host, again, code, keys = message
        try:
            return [
                self._append(
                    topic, queue_id, body, text, sys_flag, flag, born_timestamp, host, again, 0,
                    (code, keys),
                )
            ]  # fmt: skip
        except AppendRefusedError:
            return []  # nothing was done; the long way makes room or finds the words

    def _store_batch(
        self, topic: str, sys_flag: int, born_timestamp: int, batch: bytes, asked: Asked
    ) -> bool:
        _, _, queue_id, _, asker = asked
        if len(batch) > SLICED_BODY_BYTES:
            return False  # the general path stores it in slices
        try:
            placed = self._append_batch(
                topic, queue_id, batch, sys_flag, born_timestamp, asker.host
            )
        except (AppendRefusedError, RemoteProtocolError):
            return False  # as for a single message
        self._note_append()
        self._add_put(topic, len(placed), placed[-1].end_offset - placed[0].physical_offset)
        asker.position += 1
        if self._is_sync:
            self._answer_later([(asked, placed)])
        else:
            self._times.add(0)
            asker.answers.append(self._batch_reply(asked, placed))
        return True

    def _batch_reply(self, asked: Asked, placed: Sequence[Appended]) -> bytes:
        encoding, opaque, queue_id, unique_key, _ = asked
        return self._reply.now_batch(encoding, opaque, placed, queue_id, unique_key)

    def _answer_later(self, stored: list[tuple[Asked, Sequence[Appended]]]) -> None:
        """Answer all of them together, when the last is durable."""
        last = stored[-1][1][-1]
        begun_ms = monotonic_ms(self._clock)

        def answer(status: PutStatus) -> None:
            self._times.add(monotonic_ms(self._clock) - begun_ms, len(stored))
            reply = self._batch_reply if status is PutStatus.PUT_OK else self._failure(status)
            answers: dict[Asker, list[bytes | memoryview]] = {}
            for asked, placed in stored:
                answers.setdefault(asked[4], []).append(reply(asked, placed))
            for asker, parts in answers.items():
                asker.reply(parts)

        self._wait_durable(last.end_offset, answer, len(stored))

    def _failure(self, status: PutStatus) -> Callable[[Asked, Sequence[Appended]], bytes]:
        def reply(asked: Asked, placed: Sequence[Appended]) -> bytes:
            encoding, opaque, queue_id, unique_key, _ = asked
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
