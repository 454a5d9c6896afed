"""Name server, brokers and clients on simulated hosts, and the history of what they saw."""

import asyncio
import random
from dataclasses import replace
from pathlib import Path

from simulation.history import Committed, Handled, History, Struck
from simulation.machine import STORE_FILES, Machine
from simulation.network import SimulatedNetwork
from simulation.trace import Trace
from simulation.waiting import pass_time

from downrange.broker.settings import BrokerSettings
from downrange.client.consumer_settings import PushConsumerSettings
from downrange.client.listeners import Batch, OnTheLoop
from downrange.client.producer import Producer
from downrange.client.push_consumer import PushConsumer
from downrange.client.session import ClientSurroundings
from downrange.client.session_table import SessionTable
from downrange.client.settings import ClientSettings, ProducerSettings
from downrange.client.start_offset import ConsumeFromWhere
from downrange.client.transaction_producer import TransactionListener, TransactionProducer
from downrange.nameserver.server import NameServer
from downrange.nameserver.settings import NameServerSettings
from downrange.runtime.blocking import InLine
from downrange.store.errors import StoreError
from downrange.store.settings import FlushMode
from downrange.testing.drive import Drive, FileSystem
from downrange.testing.simulated_disk import SimulatedDisk
from downrange.testing.virtual_time import VirtualClock

NAME_SERVER_PORT = 9876
BROKERS = ("b1", "b2")
PLAIN_TOPIC = "orders"
ORDERLY_TOPIC = "steps"
TOPICS = (PLAIN_TOPIC, ORDERLY_TOPIC)
GROUPS = {PLAIN_TOPIC: "billing", ORDERLY_TOPIC: "walking"}
QUEUES = 2
FAIL_SHARE = 0.05  # of the messages, a program fails at the first try
START_TRIES_MAX = 200


class Cluster:
    """Built by one seed; hosts are `ns`, the brokers, and one per client."""

    def __init__(self, rng: random.Random, history: History, trace: Trace) -> None:
        self.rng = rng
        self.history = history
        self.trace = trace
        self.clock = VirtualClock()
        self.network = SimulatedNetwork(random.Random(rng.getrandbits(32)))
        mode = FlushMode.SYNC if history.is_sync else FlushMode.ASYNC
        self.machines = {
            name: self._machine(name, 10911 + 10 * index, mode)
            for index, name in enumerate(BROKERS)
        }
        self.consumers: dict[str, PushConsumer] = {}
        self.dead_consumers: set[str] = set()
        self._name_server: NameServer | None = None
        self._members = 0

    @property
    def now_s(self) -> float:
        """Virtual time."""
        return self.clock.monotonic_s()

    def note(self, fault: str, target: str, *, is_over: bool = False) -> None:
        """A fault begins or ends."""
        self.history.struck.append(Struck(self.now_s, fault, target, is_over))
        self.trace.say(f"{fault} on {target} {'is over' if is_over else 'begins'}")

    # --- servers ---------------------------------------------------------------------------

    async def start_name_server(self) -> None:
        """Start it with empty tables; brokers register again by themselves."""
        self.network.bring_up("ns")
        disk = SimulatedDisk(Drive(random.Random(0)))
        folder = Path("/var")
        disk.make_directory(folder)
        settings = NameServerSettings(
            port=NAME_SERVER_PORT,
            kv_config_path=folder / "kv.json",
            config_store_path=folder / "namesrv.properties",
        )
        server = NameServer(
            settings, self.network.at("ns"), self.clock, disk, on_failure=self._fail
        )
        await server.start()
        self._name_server = server

    async def stop_name_server(self) -> None:
        """End it at once."""
        server, self._name_server = self._name_server, None
        self.network.take_down("ns")
        if server is not None:
            await server.stop()

    async def start_broker(self, name: str) -> None:
        """Start a broker until it serves; a store that cannot be opened is a failure."""
        machine = self.machines[name]
        self.network.bring_up(name)
        for _ in range(START_TRIES_MAX):
            try:
                await machine.start()
            except (OSError, StoreError) as error:
                self.trace.say(f"broker {name} does not start yet: {error}")
                await machine.kill()
                self.network.bring_up(name)
                await pass_time(1.0)
            else:
                self.trace.say(f"broker {name} serves")
                return
        raise AssertionError(f"broker {name} never started")

    def _machine(self, name: str, port: int, mode: FlushMode) -> Machine:
        return Machine(
            random.Random(self.rng.getrandbits(32)),
            self.network.at(name),
            BrokerSettings(
                address="127.0.0.1",
                broker_name=name,
                listen_port=port,
                name_servers=f"127.0.0.1:{NAME_SERVER_PORT}",
                register_period_ms=5_000,
                transaction_check_interval_ms=5_000,
                transaction_timeout_ms=3_000,
                transaction_check_max=100,  # none is given up while a dead connection is in use
                default_queue_nums=QUEUES,
            ),
            store_files=replace(STORE_FILES, segment_bytes=65_536, flush_mode=mode),
            file_system=self.rng.choice(list(FileSystem)),
            isolate=lambda: self.network.take_down(name),
        )

    # --- clients ---------------------------------------------------------------------------

    def producer(self, name: str) -> Producer:
        """A producer on a host of its own, not started."""
        return Producer(
            "producers",
            client=self._client(name),
            settings=ProducerSettings(send_timeout_s=3.0),
            sessions=self._sessions(name),
        )

    def transaction_producer(self, name: str, listener: TransactionListener) -> TransactionProducer:
        """The same with transactions."""
        return TransactionProducer(
            "payers",
            listener,
            client=self._client(name),
            settings=ProducerSettings(send_timeout_s=3.0),
            sessions=self._sessions(name),
        )

    async def start_consumer(self, topic: str) -> str:
        """One more member of the group of a topic; returns its name."""
        self._members += 1
        name = f"c{self._members}-{topic}"
        consumer = PushConsumer(
            GROUPS[topic],
            client=self._client(name),
            settings=PushConsumerSettings(
                consume_from_where=ConsumeFromWhere.FIRST_OFFSET,
                consume_threads_min=4,
                consume_threads_max=4,
                suspend_current_queue_ms=500,
            ),
            sessions=self._sessions(name),
            threads=OnTheLoop(),
            blocking=InLine(),
            disk=SimulatedDisk(Drive(random.Random(0))),
        )
        consumer.subscribe(topic)
        listener = _Listener(self, name, topic, random.Random(self.rng.getrandbits(32)))
        if topic == ORDERLY_TOPIC:
            consumer.listen_in_order(listener)
        else:
            consumer.listen(listener)
        await consumer.start()
        self.consumers[name] = consumer
        self.trace.say(f"consumer {name} joins")
        return name

    def kill_consumer(self, name: str) -> None:
        """It disappears; what it still does concerns nobody."""
        self.dead_consumers.add(name)
        self.network.take_down(name)

    async def stop_clients(self) -> None:
        """Shut down the consumers; those that are dead too, so that no task is left."""
        for name in self.dead_consumers:
            self.network.bring_up(name)
        await asyncio.gather(
            *(one.shutdown() for one in self.consumers.values()), return_exceptions=True
        )

    def sample_offsets(self) -> None:
        """Note how far each broker believes the groups to be."""
        for name, machine in self.machines.items():
            view = None if machine.broker is None else machine.broker.view()
            if view is None or not machine.has_power:
                continue
            for topic in TOPICS:
                for queue_id in range(QUEUES):
                    offset = view.tables.offsets.query(GROUPS[topic], topic, queue_id)
                    if offset > 0:
                        mark = Committed(self.now_s, name, topic, queue_id, offset)
                        self.history.committed.append(mark)

    def _client(self, name: str) -> ClientSettings:
        return ClientSettings(
            name_servers=(f"127.0.0.1:{NAME_SERVER_PORT}",),
            client_ip="10.0.0.1",
            instance_name=name,
            poll_name_server_interval_s=3.0,
            heartbeat_interval_s=3.0,
            persist_offsets_interval_s=1.0,
        )

    def _sessions(self, name: str) -> SessionTable:
        chance = random.Random(self.rng.getrandbits(32))
        around = ClientSurroundings(self.network.at(name), self.clock, chance, process_id=lambda: 7)
        return SessionTable(nonce=chance.getrandbits(32), around=around)

    def _fail(self, name: str, error: BaseException) -> None:
        raise AssertionError(f"{name} failed") from error


class _Listener:
    """A program that consumes; it fails now and then, and takes its time."""

    def __init__(self, cluster: Cluster, name: str, topic: str, rng: random.Random) -> None:
        self._cluster, self._name, self._topic, self._rng = cluster, name, topic, rng

    async def __call__(self, batch: Batch, _context: object) -> None:
        """Take a batch of one."""
        await pass_time(self._rng.choice((0.0, 0.0, 0.01, 0.2)))
        for message in batch:
            cluster = self._cluster
            is_first = message.reconsume_times == 0
            if self._name in cluster.dead_consumers:
                return
            is_retry = not is_first and self._topic != ORDERLY_TOPIC
            topic = f"retry of {self._topic}" if is_retry else self._topic
            place = (message.broker_name, topic, message.queue_id, message.queue_offset)
            if is_first and self._rng.random() < FAIL_SHARE:
                cluster.history.given_back.setdefault(place, cluster.now_s)
                cluster.trace.say(f"{self._name} fails at {message.body.decode()} of {place}")
                raise RuntimeError("this program fails now and then")
            cluster.history.handled.append(
                Handled(cluster.now_s, self._name, message.body.decode(), place, is_first)
            )
            cluster.trace.say(f"{self._name} handles {message.body.decode()} of {place}")
