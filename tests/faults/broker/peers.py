"""Clients of a broker for fault tests: what they send is numbered, what they see is remembered."""

import asyncio
import os
import re
from collections.abc import Callable
from pathlib import Path

from downrange.protocol.command import Command
from downrange.protocol.headers.fields import Header, encode_header
from downrange.protocol.headers.pull import PullRequest
from downrange.protocol.headers.send import SendRequestV2
from downrange.protocol.record import Record, decode_records
from downrange.protocol.request_codes import RequestCode
from downrange.remoting.client import RemotingClient
from downrange.remoting.errors import ConnectError
from downrange.remoting.network import TcpNetwork

CALL_SECONDS_MAX = 20.0  # of a call that must be answered; a busy machine is slow
COMMIT_FLAG = 1
SUSPEND_FLAG = 2
SUBSCRIPTION_FLAG = 4
BORN_MS = 1_700_000_000_000
RecordProperty = Callable[[str, object], None]  # pytest's fixture of this name


class Peer:
    """A well-behaved client of one server, with a connection of its own."""

    def __init__(self, address: str) -> None:
        self.address = address
        self._client = RemotingClient(TcpNetwork())

    async def call(
        self,
        code: int,
        header: Header | None = None,
        body: bytes | None = None,
        *,
        timeout_s: float = CALL_SECONDS_MAX,
    ) -> Command:
        """A request and its answer."""
        fields = encode_header(header) if header is not None else None
        return await self._client.call(self.address, code, fields, body, timeout_s=timeout_s)

    async def wait_until_reachable(self, seconds_max: float = CALL_SECONDS_MAX) -> None:
        """Return when the server accepts connections."""
        async with asyncio.timeout(seconds_max):
            while True:
                try:
                    await self._client.connect(self.address)
                except ConnectError:
                    await pause(0.02)
                else:
                    return

    async def send(
        self,
        topic: str,
        body: bytes,
        *,
        queue_id: int = 0,
        key: str = "",
        timeout_s: float = CALL_SECONDS_MAX,
    ) -> Command:
        """A message as a producer sends it."""
        header = SendRequestV2(
            producer_group="producers",
            topic=topic,
            default_topic="TBW102",
            default_topic_queue_nums=8,
            queue_id=queue_id,
            sys_flag=0,
            born_timestamp=BORN_MS,
            flag=0,
            properties=f"UNIQ_KEY\x01{key}\x02KEYS\x01{key}\x02WAIT\x01true\x02" if key else "",
        )
        return await self.call(RequestCode.SEND_MESSAGE_V2, header, body, timeout_s=timeout_s)

    async def pull(
        self,
        topic: str,
        offset: int = 0,
        *,
        queue_id: int = 0,
        group: str = "consumers",
        commit: int | None = None,
        suspend_ms: int = 0,
        count: int = 32,
        timeout_s: float = CALL_SECONDS_MAX,
    ) -> Command:
        """A pull with its own subscription; waits at the broker if `suspend_ms` is given."""
        header = pull_header(topic, offset, queue_id, group, commit, suspend_ms, count)
        return await self.call(RequestCode.PULL_MESSAGE, header, timeout_s=timeout_s)

    def close(self) -> None:
        """Hang up."""
        self._client.close()


def pull_header(
    topic: str,
    offset: int = 0,
    queue_id: int = 0,
    group: str = "consumers",
    commit: int | None = None,
    suspend_ms: int = 0,
    count: int = 32,
) -> PullRequest:
    """The header of a pull that brings its own subscription."""
    flag = SUBSCRIPTION_FLAG
    flag |= COMMIT_FLAG if commit is not None else 0
    flag |= SUSPEND_FLAG if suspend_ms else 0
    return PullRequest(
        consumer_group=group,
        topic=topic,
        queue_id=queue_id,
        queue_offset=offset,
        max_msg_nums=count,
        sys_flag=flag,
        commit_offset=commit or 0,
        suspend_timeout_millis=suspend_ms,
        subscription="*",
        sub_version=0,
    )


def records(answer: Command) -> list[Record]:
    """The messages of a pull's answer."""
    return list(decode_records(answer.body or b""))


def own_memory_kib(process_id: int) -> int:
    """Memory of a process that is its own: not the pages of files that it has mapped."""
    status = Path(f"/proc/{process_id}/status").read_text(encoding="ascii")
    found = re.search(r"RssAnon:\s+(\d+) kB", status)
    assert found is not None
    return int(found[1])


def worked_seconds(process_id: int) -> float:
    """Processor time of a process so far: a busy machine does not make it much longer."""
    fields = Path(f"/proc/{process_id}/stat").read_text(encoding="ascii").rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


async def pause(seconds: float) -> None:
    """Let real time pass: other processes need it."""
    loop = asyncio.get_running_loop()
    future = loop.create_future()
    loop.call_later(seconds, future.set_result, None)
    await future
