"""One seed of the simulated cluster: traffic, faults, then quiet, then the checks."""

import asyncio
import random
from collections import Counter
from collections.abc import Coroutine, Sequence

from simulation.cluster import BROKERS, ORDERLY_TOPIC, PLAIN_TOPIC, QUEUES, TOPICS, Cluster
from simulation.faults import FAULTS, Strike, plan_of
from simulation.history import History, Sent
from simulation.properties import PROPERTIES, is_promised
from simulation.trace import Trace
from simulation.waiting import pass_time
from simulation.wire import Wire

from downrange.client.errors import RocketMQError
from downrange.client.message import Message, ReceivedMessage
from downrange.client.producer import Producer
from downrange.client.transaction_producer import TransactionProducer, TransactionState
from downrange.model.topics import MessageQueue
from downrange.testing.virtual_time import VirtualClock

TRAFFIC_S = 12.0
QUIET_S_MAX = 240.0  # longer than a dead connection can stay unnoticed
SAMPLE_S = 1.0
LEVEL_S = {1: 1.0, 2: 5.0}
KEYS = 3


class PropertyError(AssertionError):
    """A history in which something is not as it must be."""


class ClusterRun:
    """Two brokers, a name server, two producers and two consumers per topic."""

    def __init__(self, seed: int, kept: Sequence[int] | None = None) -> None:
        """`kept` names the faults of the seed's plan that strike; None means all of them."""
        rng = random.Random(f"cluster {seed}")
        self.counts: Counter[str] = Counter()
        self.trace = Trace(VirtualClock().monotonic_s)
        self.history = History(is_sync=rng.random() < 0.6)
        plan = plan_of(rng, TRAFFIC_S)
        self.kept = list(range(len(plan)) if kept is None else kept)
        self.plan = [plan[index] for index in self.kept]
        self.cluster = Cluster(rng, self.history, self.trace)
        self._work = random.Random(rng.getrandbits(32))
        self._number = 0
        self._payer: TransactionProducer | None = None

    async def run(self) -> None:
        """Raises `PropertyError` with everything that is wrong."""
        cluster, history = self.cluster, self.history
        mode = "SYNC_FLUSH" if history.is_sync else "ASYNC_FLUSH"
        self.trace.say(f"brokers with {mode}; faults: {', '.join(map(str, self.plan)) or 'none'}")
        await self._start()
        tasks = [asyncio.ensure_future(one) for one in self._clients()]
        tasks += [asyncio.ensure_future(self._strike(strike)) for strike in self.plan]
        await asyncio.gather(*tasks)
        self.trace.say("all faults are over, nobody sends any more")
        await self._settle()
        history.end_s = cluster.now_s
        await cluster.stop_clients()
        if self._payer is not None:
            await self._payer.shutdown()
        for machine in cluster.machines.values():
            await machine.kill()
        await cluster.stop_name_server()
        self._check()

    # --- life ------------------------------------------------------------------------------

    async def _start(self) -> None:
        cluster = self.cluster
        await cluster.start_name_server()
        for name in BROKERS:
            await cluster.start_broker(name)
            wire = Wire(cluster.network.at("admin"), cluster.machines[name].settings.listen_port)
            for topic in TOPICS:
                await wire.create_topic(topic, QUEUES)
            wire.close()
        for topic in TOPICS:
            await cluster.start_consumer(topic)
            await cluster.start_consumer(topic)

    async def _settle(self) -> None:
        """Wait until every message that is promised was handled, or it is too late."""
        history = self.history
        deadline_s = self.cluster.now_s + QUIET_S_MAX
        while self.cluster.now_s < deadline_s:
            handled = history.first_handled()
            if all(one.body in handled for one in history.sent if is_promised(history, one)):
                break
            await pass_time(SAMPLE_S)
            self.cluster.sample_offsets()
        await pass_time(2 * SAMPLE_S)
        self.cluster.sample_offsets()

    async def _strike(self, strike: Strike) -> None:
        await pass_time(strike.at_s)
        self.counts[strike.fault] += 1
        await FAULTS[strike.fault](self.cluster, random.Random(strike.seed), strike.seconds)

    def _check(self) -> None:
        wrong = [
            f"{name}: {text}"
            for name, function in PROPERTIES.items()
            for text in list(function(self.history))[:3]
        ]
        failures = [
            f"{name}: {one.name} failed: {one.error!r}"
            for name, machine in self.cluster.machines.items()
            for one in machine.failures
        ]
        self.counts["messages acknowledged"] += len(self.history.sent)
        self.counts["messages handled"] += len(self.history.handled)
        self.counts["faults"] += len(self.plan)
        if wrong or failures:
            raise PropertyError("\n".join(wrong + failures))

    # --- traffic ---------------------------------------------------------------------------

    def _clients(self) -> list[Coroutine[None, None, None]]:
        return [self._send_all("p1"), self._pay_all("p2"), self._sample_all()]

    async def _sample_all(self) -> None:
        while self.cluster.now_s < TRAFFIC_S:
            await pass_time(SAMPLE_S)
            self.cluster.sample_offsets()

    async def _send_all(self, name: str) -> None:
        """Plain, delayed and ordered messages, one after the other."""
        producer, work = self.cluster.producer(name), self._work
        await producer.start()
        while self.cluster.now_s < TRAFFIC_S:
            await pass_time(work.choice((0.0, 0.02, 0.1, 0.6)))
            kind = work.choice(("plain", "plain", "step", "step", "delayed"))
            try:
                await self._send(producer, kind)
            except RocketMQError as error:
                self.counts["sends that failed"] += 1
                self.trace.say(f"{name} could not send: {type(error).__name__}")
        await producer.shutdown()

    async def _send(self, producer: Producer, kind: str) -> None:
        self._number += 1
        body, due_s = f"{kind}-{self._number}", 0.0
        key = f"key-{self._work.randrange(KEYS)}"
        message = Message(PLAIN_TOPIC, body.encode())
        selector = None
        if kind == "step":
            message = Message(ORDERLY_TOPIC, body.encode(), sharding_key=key)

            def selector(queues: Sequence[MessageQueue], _message: Message) -> MessageQueue:
                return queues[hash_of(key) % len(queues)]

        elif kind == "delayed":
            level = self._work.choice(sorted(LEVEL_S))
            message = Message(PLAIN_TOPIC, body.encode(), delay_level=level)
            due_s = self.cluster.now_s + LEVEL_S[level]
        receipt = await producer.send(message, selector=selector)
        if receipt.status.name != "SEND_OK":
            self.trace.say(f"{body} was answered with {receipt.status.name}")
            return
        queue = receipt.queue
        place = (queue.broker_name, queue.topic, queue.queue_id, receipt.queue_offset)
        self.history.sent.append(Sent(self.cluster.now_s, body, place, due_s))
        self.trace.say(f"{body} was taken at {place}")

    async def _pay_all(self, name: str) -> None:
        """Transactions, one after the other; stays to be asked until the end."""
        self._payer = producer = self.cluster.transaction_producer(name, self)
        await producer.start()
        while self.cluster.now_s < TRAFFIC_S:
            await pass_time(self._work.choice((0.1, 0.5, 1.5)))
            self._number += 1
            body = f"half-{self._number}"
            try:
                taken = await producer.send_in_transaction(Message(PLAIN_TOPIC, body.encode()))
            except RocketMQError as error:
                self.counts["sends that failed"] += 1
                self.trace.say(f"{name} could not send {body}: {type(error).__name__}")
                continue
            queue = taken.receipt.queue
            place = (queue.broker_name, "half", queue.queue_id, taken.receipt.queue_offset)
            if taken.receipt.status.name == "SEND_OK":
                self.history.sent.append(Sent(self.cluster.now_s, body, place))
            self.trace.say(f"{body} was decided: {taken.state.name}")

    def execute(self, message: Message, _id: str, _argument: object) -> TransactionState:
        """The local transaction: decided now, but not always told."""
        verdict = self._work.choice(("commit", "rollback"))
        self.history.verdicts[message.body.decode()] = verdict
        if self._work.random() < 0.3:
            return TransactionState.UNKNOW
        return _STATES[verdict]

    def check(self, message: ReceivedMessage) -> TransactionState:
        """The broker asks again."""
        verdict = self.history.verdicts.get(message.body.decode())
        return TransactionState.UNKNOW if verdict is None else _STATES[verdict]


_STATES = {
    "commit": TransactionState.COMMIT_MESSAGE,
    "rollback": TransactionState.ROLLBACK_MESSAGE,
}


def hash_of(key: str) -> int:
    """A number that is the same in every process."""
    return sum(key.encode())
