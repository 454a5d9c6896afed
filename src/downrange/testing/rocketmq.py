"""What a test holds: a real cluster in its process, with knobs for faults and for time.

The fixtures of `downrange.testing.pytest_plugin` give these out; other test frameworks use
`with RocketMQ() as rocketmq`.
"""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from datetime import timedelta
from typing import Final, Self, TypeVar

from downrange.broker.hooks import BrokerHooks
from downrange.broker.settings import BrokerSettings, StoreFileSettings
from downrange.client.message import ReceivedMessage
from downrange.client.record_reader import read_records
from downrange.embedded.dev_cluster import DevCluster
from downrange.embedded.plan import ClusterPlan, Parts
from downrange.protocol.response_codes import ResponseCode
from downrange.remoting.network import TcpNetwork
from downrange.runtime.blocking import InLine
from downrange.store.consume_queue import ConsumeQueue
from downrange.store.message_store import MessageStore
from downrange.testing.driven_time import DrivenTime, TimeDriver
from downrange.testing.faulty_network import Door, FaultyNetwork
from downrange.testing.housekeeping import Housekeeping
from downrange.testing.quick_disk import QuickDisk
from downrange.testing.refusals import PullRefusals, SendRefusals

NAME_SERVER: Final = "name server"
WAIT_S_MAX: Final = 30.0
ADVANCE_S_MAX: Final = 300.0
_POLL_S: Final = 0.005
_STEP_WAIT_S: Final = 0.03
_NEVER_S: Final = 10**9
_READ_COUNT_MAX: Final = 1_000
T = TypeVar("T")


def kit_settings(given: BrokerSettings | None = None) -> BrokerSettings:
    """Settings under which time can be moved far without clients being taken for dead."""
    return replace(
        given or BrokerSettings(sql92_enabled=True),
        fails_fast=False,  # a loop whose time jumps is not late
        idle_s_max=_NEVER_S,
        client_expiry_ms=_NEVER_S * 1000,
    )


class RocketMQClock:
    """The time of a cluster. Clients keep their own, which is the machine's.

    While it is frozen nothing that waits for time happens in the cluster: delayed messages and
    retries, checks of transactions, expiry. `advance` makes it happen at once.
    """

    def __init__(self, driven: DrivenTime, driver: TimeDriver) -> None:
        self._driven = driven
        self._driver = driver

    @property
    def now_ms(self) -> int:
        """Milliseconds since 1970 as the brokers see it."""
        return self._driven.wall_ms()

    @property
    def is_frozen(self) -> bool:
        """Whether time stands still."""
        return self._driven.is_frozen

    def freeze(self) -> None:
        """Stand still until `advance` or `thaw`."""
        self._driver.freeze()

    def thaw(self) -> None:
        """Go on, with the machine's speed."""
        self._driver.thaw()

    def advance(self, amount: float | timedelta) -> None:
        """Let seconds pass; everything that was due has been done when this returns."""
        seconds = amount.total_seconds() if isinstance(amount, timedelta) else amount
        if seconds < 0:
            raise ValueError(f"time goes forward only, not by {seconds} s")
        self._driver.advance(seconds, ADVANCE_S_MAX)

    def advance_until(
        self,
        condition: Callable[[], object],
        *,
        step_s: float = 1.0,
        at_most_s: float = 7200.0,
    ) -> float:
        """Let time pass in steps until the condition holds; returns how many seconds it took.

        Between two steps clients get a moment of real time to do their part. `TimeoutError` if it
        does not hold after `at_most_s` and a patient wait.
        """
        passed_s = 0.0
        while not _holds(condition, _STEP_WAIT_S):
            if passed_s >= at_most_s:
                if _holds(condition, WAIT_S_MAX):
                    break
                raise TimeoutError(f"the condition does not hold after {passed_s:.0f} s")
            self.advance(step_s)
            passed_s += step_s
        return passed_s

    @contextmanager
    def running(self) -> Iterator[None]:
        """Let time run for a while: servers that start or stop may wait for something."""
        was_frozen = self.is_frozen
        self.thaw()
        try:
            yield
        finally:
            if was_frozen:
                self.freeze()


class RocketMQ(DevCluster):
    """A cluster on free loopback ports with knobs; up when `start` returns, used from any thread.

    Knobs are for a broker by its name, for all of them without one, or for `NAME_SERVER`.
    """

    def __init__(
        self,
        *,
        brokers: int = 1,
        settings: BrokerSettings | None = None,
        store_files: StoreFileSettings | None = None,
    ) -> None:
        driven = DrivenTime()
        driver = TimeDriver(driven)
        self.clock = RocketMQClock(driven, driver)
        self._network = FaultyNetwork()
        self._send_refusals = SendRefusals()
        self._pull_refusals = PullRefusals()
        super().__init__(
            plan=ClusterPlan(
                broker_count=brokers,
                broker=kit_settings(settings),
                store_files=store_files or StoreFileSettings(),
            ),
            parts=Parts(
                network=self._network,
                clock=driven,
                disk=QuickDisk(),
                syncs=InLine,
                hooks=BrokerHooks(sends=(self._send_refusals,), consumes=(self._pull_refusals,)),
            ),
            loop_factory=driver.new_loop,
        )
        self._keeping: Housekeeping | None = None

    def start(self) -> Self:
        """Start everything."""
        super().start()
        # Not over the faulty network: what a test makes slow is what its clients see.
        self._keeping = Housekeeping(self._started, TcpNetwork())
        self.run(_call(self._keeping.remember))
        return self

    def stop(self) -> None:
        """Stop everything; may be called again."""
        self.heal()
        self.clock.thaw()
        super().stop()

    def stop_broker(self, name: str = "broker-a") -> None:
        """Stop a broker in good order."""
        with self.clock.running():
            super().stop_broker(name)

    def start_broker(self, name: str = "broker-a") -> None:
        """Start a broker again, with its messages and at its old address."""
        with self.clock.running():
            super().start_broker(name)

    def kill_broker(self, name: str = "broker-a") -> None:
        """End a broker as `kill -9` would; the name server does not hear of it at once."""
        with self.clock.running():
            super().kill_broker(name)

    def stop_name_server(self) -> None:
        """Stop the name server; clients live on what they know."""
        with self.clock.running():
            super().stop_name_server()

    # --- topics and what is in them --------------------------------------------------------

    def create_topic(self, topic: str, *, queues: int = 4) -> str:
        """Make a topic on every running broker and return its name; clients find it at once."""
        self.run(self._keeper.create_topic(topic, queues))
        return topic

    def create_group(self, group: str) -> str:
        """Make a consumer group with the topic of its retries and return its name.

        A group comes by itself with its first consumer, but then a client of RocketMQ may need
        most of a minute, of its own time, to find the topic of its retries.
        """
        self.run(self._keeper.create_group(group))
        return group

    def messages(self, topic: str) -> list[ReceivedMessage]:
        """All messages of a topic, in the order in which the brokers stored them."""
        found: list[ReceivedMessage] = []

        def look() -> None:
            for name in self._started.brokers:
                view = self._keeper.view(name)
                for queue in view.store.queues.of_topic(topic):
                    found.extend(_all_of(view.store, queue, name))

        self.run(_call(look))
        found.sort(key=lambda message: (message.store_timestamp_ms, message.physical_offset))
        return found

    def lag(self, group: str, topic: str) -> int:
        """How many messages of the topic the group has not acknowledged."""

        def look() -> int:
            total = 0
            for name in self._started.brokers:
                view = self._keeper.view(name)
                for queue in view.store.queues.of_topic(topic):
                    offset = view.tables.offsets.query(group, topic, queue.queue_id)
                    total += queue.max_offset - max(offset, queue.min_offset)
            return total

        return self.run(_call(look))

    def clear(self) -> None:
        """Remove all topics and groups with their messages and offsets; turn all knobs back."""
        self.heal()
        with self.clock.running():
            for name in self.broker_names:
                if name not in self._started.brokers:
                    self.start_broker(name)
            if self._started.name_server is None:
                self.start_name_server()
            self.run(self._keeper.clear())

    # --- faults ----------------------------------------------------------------------------

    def refuse_next_send(
        self,
        *,
        code: int = ResponseCode.SYSTEM_BUSY,
        remark: str = "refused by the test",
        count: int = 1,
        topic: str | None = None,
    ) -> None:
        """Answer the next sends, of this topic or of any, with a code and a text."""
        self._send_refusals.add(code, remark, count, topic)

    def refuse_next_pull(
        self,
        *,
        code: int = ResponseCode.SYSTEM_BUSY,
        remark: str = "refused by the test",
        count: int = 1,
        topic: str | None = None,
    ) -> None:
        """The same for the next pulls that find messages."""
        self._pull_refusals.add(code, remark, count, topic)

    @property
    def refusals_left(self) -> int:
        """How many sends and pulls are still to be refused."""
        return self._send_refusals.left + self._pull_refusals.left

    def drop_connections(self, server: str | None = None) -> int:
        """Break the connections of clients, as a pulled cable would; returns how many."""

        def cut() -> int:
            return sum(door.cut() for door in self._doors(server))

        return self.run(_call(cut))

    def delay_answers(self, seconds: float, server: str | None = None) -> None:
        """Hold back everything that servers write, for so long on their clock."""
        for door in self._doors(server):
            door.delay_s = seconds

    def lose_answers(self, server: str | None = None) -> None:
        """Do what is asked and never answer; clients run into their time-outs."""
        for door in self._doors(server):
            door.loses_answers = True

    def refuse_connections(self, server: str | None = None) -> None:
        """Send away who connects; connections that exist stay."""
        for door in self._doors(server):
            door.is_shut = True

    def heal(self) -> None:
        """Turn all knobs back; servers that were stopped stay so."""
        self._send_refusals.clear()
        self._pull_refusals.clear()
        for door in self._network.doors:
            door.heal()

    @staticmethod
    def wait_until(condition: Callable[[], object], timeout_s: float = WAIT_S_MAX) -> None:
        """Return when the condition holds, looking often; `TimeoutError` if it does not in time."""
        if not _holds(condition, timeout_s):
            raise TimeoutError(f"the condition does not hold after {timeout_s:.0f} s")

    # --- inside ----------------------------------------------------------------------------

    @property
    def _keeper(self) -> Housekeeping:
        assert self._keeping is not None, "started first"
        return self._keeping

    def _doors(self, server: str | None) -> list[Door]:
        cluster = self._started
        if server == NAME_SERVER:
            return [self._network.door(cluster.name_server_port)]
        if server is not None and server not in cluster.broker_ports:
            known = ", ".join((*cluster.broker_ports, NAME_SERVER))
            raise ValueError(f"no server {server!r}; there are {known}")
        names = [server] if server is not None else list(cluster.broker_ports)
        # Producers may use the second port too.
        return [
            self._network.door(cluster.broker_ports[name] - distance)
            for name in names
            for distance in (0, 2)
        ]


async def _call(work: Callable[[], T]) -> T:
    return work()


def _holds(condition: Callable[[], object], timeout_s: float) -> bool:
    deadline_s = time.monotonic() + timeout_s
    while not condition():
        if time.monotonic() >= deadline_s:
            return False
        time.sleep(_POLL_S)
    return True


def _all_of(store: MessageStore, queue: ConsumeQueue, broker: str) -> Iterator[ReceivedMessage]:
    offset = queue.min_offset
    while offset < queue.max_offset:
        result = store.read(queue.topic, queue.queue_id, offset, _READ_COUNT_MAX)
        data = b"".join(result.views)
        result.views.clear()
        if not data or result.next_offset <= offset:
            return
        yield from read_records(data, broker_name=broker)
        offset = result.next_offset
