"""A peer that asks a broker for anything: sequences of requests from a grammar over all codes.

Most requests are well formed and mean something (the fields of their header, names that exist,
bodies of the right shape), because those get furthest; the rest have one thing wrong. Whatever it
asks, the broker's work, memory, open files and log stay within bounds, and honest clients are
served as before.
"""

import asyncio
import gc
import logging
import random
import sys
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import msgspec
from faults.broker.mutation import NASTY_TEXTS
from simulation.ledger import BrokenPromiseError
from simulation.machine import Machine
from simulation.trace import Trace
from simulation.waiting import pass_time
from simulation.wire import Wire

from downrange.broker.settings import BrokerSettings
from downrange.protocol.batch import encode_batch
from downrange.protocol.command import ONE_WAY_FLAG, RESPONSE_FLAG, Command, Serialization
from downrange.protocol.command_codec import encode_command
from downrange.protocol.errors import ProtocolError
from downrange.protocol.headers.table import REQUEST_HEADERS
from downrange.protocol.request_codes import RequestCode
from downrange.remoting.memory import MemoryNetwork
from downrange.runtime.log_lines import OneLineFormatter

PORT = 10911
REQUESTS = 150
TOPICS = ("orders", "%RETRY%billing", "SCHEDULE_TOPIC_XXXX", "RMQ_SYS_TRANS_HALF_TOPIC", "TBW102")
NAMES = ("orders", "billing", "new-1", "new-2", "b1", "DefaultCluster", "CID_ONSAPI_OWNER")
NUMBERS = (0, 1, 1, 3, 4, 16, -1, 1_000, 2**31 - 1, -(2**31), 2**63 - 1)
CODES = sorted(set(RequestCode))
# Those that leave something behind, asked for more often.
LASTING = (
    RequestCode.SEND_MESSAGE_V2,
    RequestCode.SEND_BATCH_MESSAGE,
    RequestCode.CONSUMER_SEND_MSG_BACK,
    RequestCode.END_TRANSACTION,
    RequestCode.HEART_BEAT,
    RequestCode.PULL_MESSAGE,
    RequestCode.UPDATE_CONSUMER_OFFSET,
    RequestCode.UPDATE_AND_CREATE_TOPIC,
    RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP,
    RequestCode.INVOKE_BROKER_TO_RESET_OFFSET,
    RequestCode.LOCK_BATCH_MQ,
)

# What one request may cost on average, whatever it asks for.
DISK_STEPS_MAX = 10
BLOCKS_MAX = 300  # of the interpreter's memory, which stay
LOG_BYTES_MAX = 300
CPU_S_MAX = 0.05  # for the slowest of them, in the thread that serves
OPEN_FILES_MAX = 100


class _Peer(asyncio.Protocol):
    """A connection that throws away what comes."""

    transport: asyncio.Transport | None = None
    received_bytes = 0

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self.transport = transport

    def data_received(self, data: bytes) -> None:
        self.received_bytes += len(data)

    def connection_lost(self, _error: Exception | None) -> None:
        self.transport = None


class _LogVolume(logging.Handler):
    """Counts what is logged, as the servers write it."""

    def __init__(self) -> None:
        super().__init__(logging.INFO)
        self.bytes = 0
        self.setFormatter(OneLineFormatter())

    def emit(self, record: logging.LogRecord) -> None:
        self.bytes += len(self.format(record))


class HostilePeer:
    """One seed: a sequence of requests to one broker."""

    def __init__(self, seed: int) -> None:
        self.rng = rng = random.Random(f"hostile {seed}")
        self.counts: Counter[str] = Counter()
        self.network = MemoryNetwork()
        self.machine = Machine(
            rng,
            self.network,
            BrokerSettings(address="127.0.0.1", broker_name="b1", listen_port=PORT),
            isolate=lambda: None,
        )
        self.machine.sync_s_max = 0.0
        self.trace = Trace(self.machine.clock.monotonic_s)
        self._steps = 0
        self._log = _LogVolume()

    async def run(self) -> None:
        """Raises if a limit is passed or an honest client is not served."""
        logger = logging.getLogger("downrange")
        level, propagate = logger.level, logger.propagate
        logger.addHandler(self._log)
        logger.setLevel(logging.INFO)
        logger.propagate = False
        try:
            await self._run()
        finally:
            logger.removeHandler(self._log)
            logger.setLevel(level)
            logger.propagate = propagate

    async def _run(self) -> None:
        await self.machine.start()
        wire = Wire(self.network, PORT)
        await wire.create_topic("orders", 2)
        await wire.create_group("billing")
        place = await wire.send("orders", 0, b"honest-1", self.machine.clock.wall_ms())
        self.machine.drive.before_step.append(self._count)
        blocks = sys.getallocatedblocks()
        gc.disable()  # or the time of a collection would be charged to some request
        try:
            slowest_s, slowest = await self._attack()
        finally:
            gc.enable()
            gc.collect()
        grown = sys.getallocatedblocks() - blocks
        self.machine.drive.before_step.clear()
        self._check("disk steps per request", self._steps / REQUESTS, DISK_STEPS_MAX)
        self._check("memory blocks per request", grown / REQUESTS, BLOCKS_MAX)
        self._check("log bytes per request", self._log.bytes / REQUESTS, LOG_BYTES_MAX)
        self._check(f"CPU seconds of {slowest}", slowest_s, CPU_S_MAX)
        self._check("open files", len(self.machine.drive.opened), OPEN_FILES_MAX)
        for failure in self.machine.failures:
            raise BrokenPromiseError(f"{failure.name} failed: {failure.error!r}")
        if "orders" in await wire.topics():  # it may have deleted it: nobody forbids it
            await wire.send("orders", 0, b"honest-2", self.machine.clock.wall_ms())
            bodies = [record.body for record in await wire.read("orders", 0)]
            for honest in (b"honest-1", b"honest-2"):
                if honest not in bodies and not self.counts["DELETE_TOPIC_IN_BROKER"]:
                    raise BrokenPromiseError(f"{honest!r} of {place} is gone")
        wire.close()
        await self.machine.kill()

    async def _attack(self) -> tuple[float, str]:
        """Send everything; returns the CPU time of the slowest request, and which it was."""
        peer: _Peer | None = None
        slowest = (0.0, "")
        for _ in range(REQUESTS):
            if peer is None or peer.transport is None:
                peer = await self._connect()
            request = self._request()
            data = self._encoded(request)
            if data is None or peer.transport is None:
                continue
            name = _name_of(request.code)
            self.counts[name] += 1
            self.counts["requests"] += 1
            body_bytes = len(request.body or b"")
            self.trace.say(f"{name} with {str(request.ext_fields)[:200]}, body of {body_bytes} B")
            peer.transport.write(data)
            begin_s = time.thread_time()
            for _ in range(5):
                await pass_time(0.0)
            slowest = max(slowest, (time.thread_time() - begin_s, name))
            if self.rng.random() < 0.1:
                await pass_time(self.rng.choice((0.1, 2.0, 20.0)))
        if peer is not None and peer.transport is not None:
            peer.transport.close()
        await pass_time(1.0)
        return slowest

    async def _connect(self) -> _Peer:
        peer = _Peer()
        await self.network.connect("127.0.0.1", PORT, lambda: peer)
        self.counts["connections"] += 1
        return peer

    def _check(self, what: str, value: float, most: float) -> None:
        self.trace.say(f"{what}: {value:.4g}, at most {most}")
        if value > most:
            raise BrokenPromiseError(f"{what}: {value:.4g} is over {most}")

    def _count(self, _operation: str, _path: Path) -> None:
        self._steps += 1

    # --- the grammar -----------------------------------------------------------------------

    def _request(self) -> Command:
        rng = self.rng
        kinds = (rng.choice(CODES), rng.choice(LASTING), rng.randrange(-5, 70_000))
        code = int(rng.choices(kinds, (50, 47, 3))[0])
        flag = rng.choices((0, ONE_WAY_FLAG, RESPONSE_FLAG, 7, -1), (80, 10, 5, 3, 2))[0]
        return Command(
            code=code,
            opaque=rng.choice((rng.randrange(100), -1, 2**31 - 1)),
            flag=flag,
            remark=rng.choice((None, None, "x" * 300)),
            ext_fields=self._fields(code),
            body=self._body(),
            serialization=rng.choice(list(Serialization)),
        )

    def _encoded(self, request: Command) -> bytes | None:
        try:
            data = encode_command(request)
        except ProtocolError:  # binary headers have no room for some values
            return None
        if self.rng.random() < 0.02:
            return data[: self.rng.randrange(len(data))]  # and then the next one
        return data

    def _fields(self, code: int) -> dict[str, str] | None:
        rng = self.rng
        header = REQUEST_HEADERS.get(RequestCode(code)) if code in CODES else None
        if header is None or rng.random() < 0.03:
            return rng.choice((None, {}, {rng.choice(NASTY_TEXTS) or "x": rng.choice(NASTY_TEXTS)}))
        fields = {
            field.encode_name: self._value(field.encode_name, field.type)
            for field in msgspec.structs.fields(header)
            if field.required or rng.random() < 0.5
        }
        if fields and rng.random() < 0.2:
            wrong = rng.choice(sorted(fields))
            fields[wrong] = rng.choice(NASTY_TEXTS)
        return fields

    def _value(self, name: str, kind: object) -> str:
        rng = self.rng
        if "topic" in name.lower() or name == "b":
            return rng.choice(TOPICS)
        if kind is bool:
            return rng.choice(("true", "false"))
        if kind is str or "str" in str(kind):
            return rng.choice((*NAMES, *NAMES, "*", "a || b", "x" * 200))
        return str(rng.choice(NUMBERS))

    def _body(self) -> bytes | None:
        bodies: list[Callable[[], bytes | None]] = [
            lambda: None,
            lambda: b"",
            lambda: self.rng.randbytes(self.rng.randrange(200)),
            lambda: b'{"clientID":"evil","consumerDataSet":[' + b",".join(self._groups()) + b"]}",
            lambda: b'{"topicConfigTable":{' + b",".join(self._groups()) + b"}}",
            lambda: b"[" * 500,
            lambda: b'{"a":' * 100 + b"1" + b"}" * 100,
            lambda: encode_batch((0, b"", b"") for _ in range(self.rng.randrange(200))),
            lambda: b"listenPort=1\nfileReservedTime=99999999999\n\0=\n",
        ]
        return self.rng.choice(bodies)()

    def _groups(self) -> list[bytes]:
        return [
            b'{"groupName":"g%d","consumeType":"CONSUME_PASSIVELY","messageModel":"CLUSTERING",'
            b'"consumeFromWhere":"CONSUME_FROM_LAST_OFFSET","subscriptionDataSet":[]}'
            % self.rng.randrange(1_000)
            for _ in range(self.rng.randrange(20))
        ]


def _name_of(code: int) -> str:
    return RequestCode(code).name if code in CODES else "unknown codes"
