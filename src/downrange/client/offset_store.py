"""How far a group has come in each queue: in memory at once, and kept for good every few seconds.

A clustering group keeps its offsets at the brokers, a member of a broadcasting group in a file of
its own, in the format of the Java client:

    ~/.rocketmq_offsets/CLIENT_ID/GROUP/offsets.json     (and offsets.json.bak, the one before)
"""

import logging
from collections.abc import Collection
from pathlib import Path
from typing import Final, Protocol

import msgspec

from downrange.client.errors import RocketMQError
from downrange.model.topics import MessageQueue
from downrange.protocol.bodies.json_body import Body, decode_body
from downrange.protocol.errors import ProtocolError
from downrange.protocol.integers import Int64
from downrange.protocol.pretty_json import write_pretty_json
from downrange.runtime.blocking import BlockingRunner
from downrange.runtime.disk import Disk, make_durable_directory
from downrange.runtime.durable_file import DurableFile, DurableFileError

_log = logging.getLogger(__name__)

OFFSETS_FOLDER: Final = ".rocketmq_offsets"
OFFSETS_FILE: Final = "offsets.json"


class OffsetBroker(Protocol):
    """What the store needs of brokers; errors are `RocketMQError`."""

    async def query_offset(self, queue: MessageQueue) -> int | None:
        """What the group has committed; None if nothing."""
        ...

    async def commit_offset(self, queue: MessageQueue, offset: int, *, wait: bool) -> None:
        """Commit; with `wait` the broker has it when this returns."""
        ...


class OffsetStore(Protocol):
    """Offsets of one consumer. Owned by its event loop."""

    def update(self, queue: MessageQueue, offset: int, *, increase_only: bool) -> None:
        """The consumer has come this far."""
        ...

    def freeze(self, queue: MessageQueue, offset: int) -> None:
        """Set an offset that no `update` moves any more, until the queue is removed."""
        ...

    def in_memory(self, queue: MessageQueue) -> int | None:
        """What the consumer has come to, without asking anybody."""
        ...

    async def stored(self, queue: MessageQueue) -> int | None:
        """What is kept for good, which memory takes over; `RocketMQError` if it cannot be had."""
        ...

    async def persist(self, queues: Collection[MessageQueue], *, wait: bool = False) -> None:
        """Keep the offsets of these queues for good; what cannot be kept is logged."""
        ...

    def remove(self, queue: MessageQueue) -> None:
        """Forget a queue that is not ours any more."""
        ...

    def snapshot(self, topic: str = "") -> dict[MessageQueue, int]:
        """The offsets in memory, of one topic or of all."""
        ...


class _Table:
    """Offsets in memory, some of them frozen."""

    def __init__(self) -> None:
        self._offsets: dict[MessageQueue, int] = {}
        self._frozen: set[MessageQueue] = set()

    def update(self, queue: MessageQueue, offset: int, *, increase_only: bool) -> None:
        """The consumer has come this far."""
        if queue in self._frozen:
            return
        old = self._offsets.get(queue)
        if old is None or not increase_only or offset > old:
            self._offsets[queue] = offset

    def freeze(self, queue: MessageQueue, offset: int) -> None:
        """Set an offset for good."""
        self._offsets[queue] = offset
        self._frozen.add(queue)

    def in_memory(self, queue: MessageQueue) -> int | None:
        """What the consumer has come to."""
        return self._offsets.get(queue)

    def remove(self, queue: MessageQueue) -> None:
        """Forget a queue."""
        self._offsets.pop(queue, None)
        self._frozen.discard(queue)

    def snapshot(self, topic: str = "") -> dict[MessageQueue, int]:
        """The offsets in memory."""
        return {
            queue: offset
            for queue, offset in self._offsets.items()
            if not topic or queue.topic == topic
        }


class RemoteOffsetStore(_Table):
    """Offsets that the brokers keep for the group."""

    def __init__(self, broker: OffsetBroker, group: str) -> None:
        super().__init__()
        self._broker = broker
        self._group = group
        self._failing: set[str] = set()  # brokers that did not take the last offset

    async def stored(self, queue: MessageQueue) -> int | None:
        """What the broker has; memory takes it over."""
        offset = await self._broker.query_offset(queue)
        if offset is not None:
            self.update(queue, offset, increase_only=False)
        return offset

    async def persist(self, queues: Collection[MessageQueue], *, wait: bool = False) -> None:
        """Tell each queue's broker; one that cannot be reached is told the next time."""
        for queue in queues:
            offset = self.in_memory(queue)
            if offset is None:
                continue
            try:
                await self._broker.commit_offset(queue, offset, wait=wait)
            except RocketMQError as error:
                if queue.broker_name not in self._failing:
                    self._failing.add(queue.broker_name)
                    _log.warning("offset %d of %s not kept: %s", offset, queue, error)
            else:
                self._failing.discard(queue.broker_name)


class OffsetFile(Body, frozen=True, kw_only=True):
    """The content of offsets.json."""

    offset_table: dict[MessageQueue, Int64] = msgspec.field(default_factory=dict)


class LocalOffsetStore(_Table):
    """Offsets in a file of this client. Writing runs where `blocking` runs it."""

    def __init__(self, disk: Disk, path: Path, blocking: BlockingRunner) -> None:
        super().__init__()
        self._disk = disk
        self._blocking = blocking
        self._file = DurableFile(
            disk, path, lambda data: decode_body(OffsetFile, data), (ProtocolError, ValueError)
        )
        self._kept: dict[MessageQueue, int] | None = None

    async def stored(self, queue: MessageQueue) -> int | None:
        """What the file has; memory takes it over."""
        offset = self._load().get(queue)
        if offset is not None:
            self.update(queue, offset, increase_only=False)
        return offset

    async def persist(self, queues: Collection[MessageQueue], *, wait: bool = False) -> None:
        """Write the file; offsets of other queues in it stay."""
        del wait
        known = {queue: offset for queue in queues if (offset := self.in_memory(queue)) is not None}
        try:
            kept = self._load()
            if not known or all(kept.get(queue) == offset for queue, offset in known.items()):
                return
            kept.update(known)
            data = write_pretty_json(OffsetFile(offset_table=dict(kept)))
            await self._blocking.run(lambda: self._write(data))
        except (OSError, RocketMQError) as error:
            self._kept = None  # what the file holds is not known; read it before the next write
            _log.warning("offsets not kept in %s: %s", self._file.path, error)

    def _write(self, data: bytes) -> None:
        make_durable_directory(self._disk, self._file.path.parent)
        self._file.replace(data)

    def _load(self) -> dict[MessageQueue, int]:
        if self._kept is None:
            try:
                content = self._file.load()
            except (OSError, DurableFileError) as error:
                raise RocketMQError(
                    f"the offsets of this client cannot be read: {error}; repair or remove the "
                    f"file and its backup to begin anew"
                ) from error
            self._kept = dict(content.offset_table) if content is not None else {}
        return self._kept


def offsets_path(folder: str, client_id: str, group: str) -> Path:
    """Where a client keeps its offsets of a group; without a folder, where Java does."""
    root = Path(folder) if folder else Path.home() / OFFSETS_FOLDER
    return root / client_id / group / OFFSETS_FILE
