"""A whole broker in memory and virtual time, and a client to talk to it."""

import asyncio
import random
from collections.abc import Callable
from pathlib import Path
from typing import Self

from downrange.broker.hooks import BrokerHooks
from downrange.broker.server import Broker, Surroundings
from downrange.broker.settings import BrokerSettings, StoreFileSettings
from downrange.protocol.command import Command
from downrange.protocol.headers.fields import Header, encode_header
from downrange.protocol.headers.pull import PullRequest
from downrange.protocol.headers.send import SendRequestV2
from downrange.protocol.record import Record, decode_records
from downrange.protocol.request_codes import RequestCode
from downrange.remoting.client import RemotingClient
from downrange.remoting.connection import Connection
from downrange.remoting.memory import MemoryNetwork
from downrange.runtime.blocking import BlockingRunner, InLine
from downrange.runtime.disk import Disk
from downrange.testing.virtual_time import VirtualClock

ADDRESS = "127.0.0.1:10911"
UNIQUE_KEY = "7F000001000100000000000000000ABC"


def fail(name: str, error: BaseException) -> None:
    raise AssertionError(name) from error


class OneBroker:
    """`async with OneBroker(tmp_path) as broker`: started, with a connection to it."""

    def __init__(
        self,
        root: Path,
        settings: BrokerSettings | None = None,
        store_files: StoreFileSettings | None = None,
        disk: Disk | None = None,
        *,
        syncs: BlockingRunner | None = None,
        saves: BlockingRunner | None = None,
        hooks: BrokerHooks | None = None,
    ) -> None:
        self.network = MemoryNetwork()
        self.broker = Broker(
            settings or BrokerSettings(address="127.0.0.1", broker_name="b1"),
            store_files or small_files(root),
            Surroundings(
                network=self.network,
                clock=VirtualClock(),
                disk=disk or Disk(),
                chance=random.Random(1),
                syncs=syncs or InLine(),
                saves=saves or InLine(),
                scrubs=InLine(),
                process_id=7,
            ),
            on_failure=fail,
            hooks=hooks,
        )
        self.client = RemotingClient(self.network)

    async def __aenter__(self) -> Self:
        await self.broker.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        self.client.close()
        await self.broker.stop()

    async def connect(self) -> Connection:
        """A further connection."""
        return await RemotingClient(self.network).connect(ADDRESS)

    async def call(
        self, code: int, header: Header | None = None, body: bytes | None = None
    ) -> Command:
        """A request on the first connection."""
        fields = encode_header(header) if header is not None else None
        return await self.client.call(ADDRESS, code, fields, body, timeout_s=60)

    async def send(
        self,
        topic: str,
        body: bytes = b"body",
        *,
        queue_id: int = 0,
        properties: str = f"UNIQ_KEY\x01{UNIQUE_KEY}\x02WAIT\x01true\x02",
        sys_flag: int = 0,
    ) -> Command:
        """A message as a Java producer sends it."""
        header = SendRequestV2(
            producer_group="producers",
            topic=topic,
            default_topic="TBW102",
            default_topic_queue_nums=4,
            queue_id=queue_id,
            sys_flag=sys_flag,
            born_timestamp=1_700_000_000_000,
            flag=0,
            properties=properties,
        )
        return await self.call(RequestCode.SEND_MESSAGE_V2, header, body)

    def pull_header(self, topic: str, offset: int = 0, **changes: object) -> PullRequest:
        """A pull with its own subscription, which does not wait."""
        values: dict[str, object] = {
            "consumer_group": "consumers",
            "topic": topic,
            "queue_id": 0,
            "queue_offset": offset,
            "max_msg_nums": 32,
            "sys_flag": 4,
            "commit_offset": 0,
            "suspend_timeout_millis": 15_000,
            "subscription": "*",
            "sub_version": 0,
            **changes,
        }
        return PullRequest(**values)  # type: ignore[arg-type]

    async def pull(self, topic: str, offset: int = 0, **changes: object) -> Command:
        """Pull from queue 0."""
        return await self.call(RequestCode.PULL_MESSAGE, self.pull_header(topic, offset, **changes))


def small_files(root: Path, **changes: object) -> StoreFileSettings:
    """Files small enough for a test."""
    values: dict[str, object] = {
        "root": str(root / "store"),
        "segment_bytes": 1 << 20,
        "queue_bytes": 2_000,
        "index_slots": 100,
        "index_items": 1_000,
        **changes,
    }
    return StoreFileSettings(**values)  # type: ignore[arg-type]


def records(answer: Command) -> list[Record]:
    """The messages of a pull's answer."""
    return list(decode_records(answer.body or b""))


class SlowSyncs:
    """A disk that takes its time for every sync."""

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds

    async def run(self, work: Callable[[], None]) -> None:
        await pass_time(self.seconds)
        work()

    def close(self) -> None:
        pass


async def pass_time(seconds: float) -> None:
    """Let virtual time go by."""
    loop = asyncio.get_running_loop()
    future = loop.create_future()
    loop.call_later(seconds, future.set_result, None)
    await future
