"""GET_BROKER_RUNTIME_INFO: one table of what a broker is doing, under RocketMQ's keys.

Keys about parts that this broker does not have are there too, because tools read them: nothing
waits in a timer wheel, and there is no pool of buffers. Nothing queues for threads either; where
RocketMQ shows such a queue, stand the sends that wait for the disk and the ends of transactions
that wait for the log, and as the age of the first one, how late the event loop is.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from downrange.broker.rates import Rates
from downrange.broker.stats import BrokerStats
from downrange.model.names import SCHEDULE_TOPIC
from downrange.protocol.bodies.json_body import encode_body
from downrange.protocol.bodies.topics import KvTable
from downrange.protocol.command import Command, response
from downrange.protocol.delay_levels import queue_of_level
from downrange.protocol.integers import INT32_MAX
from downrange.protocol.record import decode_record
from downrange.protocol.request_codes import RequestCode
from downrange.protocol.response_codes import ResponseCode
from downrange.protocol.versions import CURRENT_VERSION, version_name
from downrange.remoting.connection import Answer, Connection, Handler
from downrange.runtime.clock import Clock
from downrange.runtime.disk import Disk
from downrange.store.message_store import MessageStore
from downrange.store.offset_tables import DelayOffsets
from downrange.store.scanner import Damage

_UNITS = "KMGTPE"
_NO_TIMER = {
    "timerReadBehind": "0",
    "timerOffsetBehind": "0",
    "timerCongestNum": "0",
    "timerEnqueueTps": "0.0",
    "timerDequeueTps": "0.0",
}


@dataclass(frozen=True, slots=True)
class WaitingLine:
    """Requests that wait: how many, how many may, and for how long the first one has."""

    count: int = 0
    capacity: int = 0
    wait_ms: int = 0


@dataclass(frozen=True, slots=True)
class WaitingLines:
    """All that wait at the moment."""

    sends: WaitingLine = WaitingLine()
    pulls: WaitingLine = WaitingLine()
    ends: WaitingLine = WaitingLine()


class RuntimeInfoHandler:
    """Collects the numbers at the moment they are asked for."""

    def __init__(
        self,
        store: MessageStore,
        stats: BrokerStats,
        rates: Rates,
        delay_offsets: Callable[[], DelayOffsets],
        disk: Disk,
        clock: Clock,
        waiting: Callable[[], WaitingLines],
        accepts_from_ms: Callable[[], int],
        clash: Callable[[], str | None],
        not_ready: Callable[[], str | None],
    ) -> None:
        self._clash = clash
        self._not_ready = not_ready
        self._store = store
        self._stats = stats
        self._rates = rates
        self._delay_offsets = delay_offsets
        self._disk = disk
        self._clock = clock
        self._waiting = waiting
        self._accepts_from_ms = accepts_from_ms
        self._boot_ms = clock.wall_ms()
        self._boot_s = clock.monotonic_s()

    def routes(self) -> dict[int, Handler]:
        """Which codes this serves."""
        return {RequestCode.GET_BROKER_RUNTIME_INFO: self.get}

    def get(self, request: Command, _: Connection) -> Answer:
        """The table."""
        body = KvTable(table=dict(sorted(self.table().items())))
        return response(request, ResponseCode.SUCCESS, body=encode_body(body))

    def table(self) -> dict[str, str]:
        """Everything, by key; `ours` are not in RocketMQ, and left out where there is none."""
        ours = {
            "registrationClash": self._clash(),
            "notReady": self._not_ready(),
            "storeDamage": _damage_text(self._store.scrubber.damages),
        }
        return {
            **{key: text for key, text in ours.items() if text is not None},
            "brokerActive": "true",
            "brokerVersionDesc": version_name(CURRENT_VERSION),
            "bootTimestamp": str(self._boot_ms),
            "runtime": _duration(int(self._clock.monotonic_s() - self._boot_s)),
            "startAcceptSendRequestTimeStamp": str(self._accepts_from_ms()),
            **self._traffic(),
            **self._log(),
            **self._disks(),
            **self._delays(),
            **_lines(self._waiting()),
            **_NO_TIMER,
        }

    def _traffic(self) -> dict[str, str]:
        put, rates = self._stats.put, self._rates
        puts, gets = rates.puts_of_days, rates.gets_of_days
        return {
            "putMessageTimesTotal": str(put.count),
            "putMessageSizeTotal": str(put.size),
            "putMessageAverageSize": str(put.size / put.count if put.count else 0.0),
            "putMessageFailedTimes": str(self._stats.put_failures),
            "putMessageEntireTimeMax": str(rates.puts.max_ms),
            "putMessageDistributeTime": rates.puts.distribution,
            "putLatency99": f"{rates.puts.percentile_ms(0.99):.2f}",
            "putLatency999": f"{rates.puts.percentile_ms(0.999):.2f}",
            "getMessageEntireTimeMax": str(rates.pulls.max_ms),
            "putTps": rates.put_tps,
            "getFoundTps": rates.get_found_tps,
            "getMissTps": rates.get_missed_tps,
            "getTotalTps": rates.get_total_tps,
            "getTransferredTps": rates.get_transferred_tps,
            "msgPutTotalYesterdayMorning": str(puts.yesterday_morning),
            "msgPutTotalTodayMorning": str(puts.today_morning),
            "msgPutTotalTodayNow": str(self._stats.user_puts),
            "msgGetTotalYesterdayMorning": str(gets.yesterday_morning),
            "msgGetTotalTodayMorning": str(gets.today_morning),
            "msgGetTotalTodayNow": str(self._stats.user_gets),
        }

    def _log(self) -> dict[str, str]:
        store, log = self._store, self._store.log
        return {
            "commitLogMinOffset": str(log.min_offset),
            "commitLogMaxOffset": str(log.max_offset),
            "dispatchBehindBytes": str(max(log.max_offset - store.dispatched_offset, 0)),
            "dispatchMaxBuffer": "0",
            "remainHowManyDataToFlush": readable_bytes(log.max_offset - store.durable_offset),
            "remainTransientStoreBufferNumbs": str(INT32_MAX),  # as RocketMQ without a pool
            "pageCacheLockTimeMills": "0",  # one thread appends, so nobody holds a lock
            "earliestMessageTimeStamp": str(self._earliest_ms()),
        }

    def _disks(self) -> dict[str, str]:
        settings = self._store.settings
        ratios = {path: self._used_ratio(path) for path in settings.log_paths.writable}
        usage = self._disk.usage(settings.root)
        return {
            "commitLogDiskRatio": min(ratios.values(), key=float),
            **{f"commitLogDiskRatio_{path}": ratio for path, ratio in ratios.items()},
            "consumeQueueDiskRatio": self._used_ratio(settings.consume_queue_path),
            "commitLogDirCapacity": (
                f"Total : {readable_bytes(usage.total_bytes)}, "
                f"Free : {readable_bytes(usage.free_bytes)}."
            ),
        }

    def _delays(self) -> dict[str, str]:
        """How far each delay level is, and how far it has to go."""
        table = {}
        for level, offset in sorted(self._delay_offsets().offsets.items()):
            queue = self._store.queues.get(SCHEDULE_TOPIC, queue_of_level(level))
            end = queue.max_offset if queue is not None else 0
            table[f"scheduleMessageOffset_{level}"] = f"{offset},{end}"
        return table

    def _used_ratio(self, directory: Path) -> str:
        # Rounded up to whole percents, as RocketMQ does; less a hair, for 0.29 * 100 is over 29.
        try:
            used_ratio = self._disk.usage(directory).used_ratio
        except OSError:
            return "-1.0"  # no such directory, as RocketMQ says it
        return str(math.ceil(used_ratio * 100 - 1e-9) / 100)

    def _earliest_ms(self) -> int:
        record = self._store.lookup.record_at(self._store.log.min_offset)
        return -1 if record is None else decode_record(record, check_crc=False).store_timestamp


def readable_bytes(count: int) -> str:
    """A number of bytes for people, like "1.4 KiB"."""
    if count < 1024:  # noqa: PLR2004 - the first unit
        return f"{count} B"
    power = min(int(math.log(count, 1024)), len(_UNITS))
    return f"{count / 1024**power:.1f} {_UNITS[power - 1]}iB"


def _duration(seconds: int) -> str:
    minutes, seconds = divmod(seconds, 60)
    hours, minutes = divmod(minutes, 60)
    days, hours = divmod(hours, 24)
    return f"[ {days} days, {hours} hours, {minutes} minutes, {seconds} seconds ]"


def _lines(waiting: WaitingLines) -> dict[str, str]:
    none = WaitingLine()
    table = {
        "EndTransactionQueueSize": str(waiting.ends.count),
        "EndTransactionThreadPoolQueueCapacity": str(waiting.ends.capacity),
    }
    for pool, line in (
        ("send", waiting.sends),
        ("pull", waiting.pulls),
        ("litePull", waiting.pulls),
        ("query", none),
        ("ack", none),
    ):
        table[f"{pool}ThreadPoolQueueSize"] = str(line.count)
        table[f"{pool}ThreadPoolQueueCapacity"] = str(line.capacity)
        table[f"{pool}ThreadPoolQueueHeadWaitTimeMills"] = str(line.wait_ms)
    return table


def _damage_text(damages: list[Damage]) -> str | None:
    if not damages:
        return None
    return f"the scrubber found {len(damages)} damaged places, first: {damages[0]}"
