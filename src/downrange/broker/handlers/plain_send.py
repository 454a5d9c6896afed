"""The send of a plain message or batch, straight from its frame into the log.

Most messages need no decision: their topic is known and open, and their text asks for no delay, no
transaction and no retry; in a batch none can. They go this way, which gives the same result as
`handlers.send` with fewer steps. Whatever is not plain, and whatever the store refuses, is left to
`handlers.send`.
"""

from collections.abc import Mapping
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
from downrange.protocol.sys_flag import TRANSACTION_MASK
from downrange.remoting.connection import Connection
from downrange.runtime.clock import Clock
from downrange.store.appender import HOST_V4_BYTES, Appended
from downrange.store.errors import AppendRefusedError, PutStatus
from downrange.store.message_store import MessageStore

# Names, or beginnings of names, that ask for something else than storing the message.
_SPECIAL = (
    b"POP_CK", b"MSG_REGION", b"TRACE_ON", b"CLUSTER", b"TRAN_MSG", b"DELAY", b"TIMER_",
    b"WAIT\x01false", b"UNIQ_KEY", b"KEYS\x01",
)  # fmt: skip
_UNIQUE = b"UNIQ_KEY\x01"
_UNIQUE_BYTES = len(_UNIQUE)
_KEYS = b"KEYS\x01"
_VALUE_END = 2
_RESTS_MAX = 4096

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

    def serve(self, frame: Frame, connection: Connection) -> bytes | None:
        """The answer, empty if it comes later; None if the frame is not for here."""
        send = self._read(frame.encoding, frame.header)
        body = frame.body
        if send is None or body is None or self._gate.is_closed:
            return None
        opaque, topic, queue_id, sys_flag, born_timestamp, flag, reconsume_times, text, is_batch = (
            send
        )
        config = self._topic(topic)
        if (
            config is None
            or self._admitted.get(topic) is not config
            or not 0 <= queue_id < config.write_queue_nums
            or sys_flag & TRANSACTION_MASK
            or topic[0] == "%"
            or config.topic_filter_type == "MULTI_TAG"
            or len(connection.host) != HOST_V4_BYTES
        ):
            return None
        start = text.find(_UNIQUE)
        end = text.find(b"\x02", start)
        unique_key = text[start + _UNIQUE_BYTES : end]
        if start < 0 or not unique_key or (start and text[start - 1] != _VALUE_END):
            return None
        if is_batch:  # its text says nothing else that counts
            return self._serve_batch(
                frame.encoding, body, connection, opaque, topic, queue_id, sys_flag,
                born_timestamp, unique_key,
            )  # fmt: skip
        rest = text[:start] + text[end + 1 :] if end >= 0 else b"UNIQ_KEY"
        found = self._rests.get(rest, _UNKNOWN)
        if found is _UNKNOWN:
            found = self._judge(rest)
        if found is None:
            return None
        tag_code, more_keys = found
        try:
            appended = self._append(
                topic,
                queue_id,
                body,
                text + self._additions
                if text[-1] == _VALUE_END
                else text + b"\x02" + self._additions,
                sys_flag,
                flag,
                born_timestamp,
                connection.host,
                reconsume_times,
                0,
                (tag_code, [unique_key, *more_keys]),
            )
        except AppendRefusedError:
            return None  # nothing was done; the long way finds the words for it
        self._note_append()
        self._add_put(topic, 1, appended[1])
        if self._is_sync:
            self._answer_later(frame.encoding, opaque, connection, [appended], queue_id, unique_key)
            return b""
        self._times.add(0)  # no wait was in between
        return self._reply.now(frame.encoding, opaque, appended, queue_id, unique_key)

    def _serve_batch(
        self,
        encoding: int,
        batch: bytes,
        connection: Connection,
        opaque: int,
        topic: str,
        queue_id: int,
        sys_flag: int,
        born_timestamp: int,
        unique_key: bytes,
    ) -> bytes | None:
        try:
            placed = self._append_batch(
                topic, queue_id, batch, sys_flag, born_timestamp, connection.host
            )
        except (AppendRefusedError, RemoteProtocolError):
            return None  # as for a single message
        self._note_append()
        self._add_put(topic, len(placed), placed[-1].end_offset - placed[0].physical_offset)
        if self._is_sync:
            self._answer_later(encoding, opaque, connection, placed, queue_id, unique_key)
            return b""
        self._times.add(0)
        return self._reply.now_batch(encoding, opaque, placed, queue_id, unique_key)

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

    def _answer_later(
        self,
        encoding: int,
        opaque: int,
        connection: Connection,
        placed: list[Appended],
        queue_id: int,
        unique_key: bytes,
    ) -> None:
        def answer(status: PutStatus) -> None:
            self._times.add(self._clock.wall_ms() - placed[0].store_timestamp)
            if status is PutStatus.PUT_OK:
                reply = self._reply.now_batch(encoding, opaque, placed, queue_id, unique_key)
            else:
                request = Command(
                    code=RequestCode.SEND_MESSAGE_V2,
                    opaque=opaque,
                    serialization=Serialization(encoding),
                )
                reply = self._reply.later(request, status, placed, queue_id, unique_key)
            connection.reply(reply)

        self._wait_durable(placed[-1].end_offset, answer)
