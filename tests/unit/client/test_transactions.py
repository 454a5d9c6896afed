"""Transactions: half messages, verdicts, and brokers that ask."""

from pathlib import Path

import pytest
from unit.broker.one_broker import pass_time
from unit.client.producing import stored

from downrange.client.hooks import EndTransactionContext
from downrange.client.message import Message, ReceivedMessage
from downrange.client.session_table import SessionTable
from downrange.client.settings import ClientSettings
from downrange.client.transaction_producer import TransactionProducer, TransactionState
from downrange.testing.cluster import MemoryCluster
from downrange.testing.virtual_time import run

COMMIT, ROLLBACK = TransactionState.COMMIT_MESSAGE, TransactionState.ROLLBACK_MESSAGE
UNKNOWN = TransactionState.UNKNOW


class Ledger:
    """A listener that does as it is told, and remembers."""

    def __init__(self, execute: TransactionState | Exception, check: TransactionState) -> None:
        self._execute = execute
        self._check = check
        self.executed: list[tuple[bytes, str, object]] = []
        self.checked: list[ReceivedMessage] = []
        self.ended: list[EndTransactionContext] = []

    def execute(self, message: Message, transaction_id: str, argument: object) -> TransactionState:
        self.executed.append((message.body, transaction_id, argument))
        if isinstance(self._execute, Exception):
            raise self._execute
        return self._execute

    async def check(self, message: ReceivedMessage) -> TransactionState:
        self.checked.append(message)
        return self._check

    def end_transaction(self, context: EndTransactionContext) -> None:
        self.ended.append(context)


def transactions(
    cluster: MemoryCluster, ledger: Ledger, client: ClientSettings | None = None
) -> TransactionProducer:
    return TransactionProducer(
        "payers",
        ledger,
        client=client or cluster.client_settings(),
        sessions=SessionTable(nonce=7, around=cluster.surroundings()),
        end_transaction_hooks=[ledger],
    )


@pytest.mark.parametrize(("state", "count"), [(COMMIT, 1), (ROLLBACK, 0), (UNKNOWN, 0)])
def test_a_message_is_seen_after_a_commit_only(
    tmp_path: Path, state: TransactionState, count: int
) -> None:
    async def main() -> None:
        async with MemoryCluster(tmp_path) as cluster:
            ledger = Ledger(state, UNKNOWN)
            async with transactions(cluster, ledger) as producer:
                await producer.send(Message("orders", b"plain"))
                result = await producer.send_in_transaction(
                    Message("orders", b"paid", tag="t", delay_level=3), "argument"
                )
                assert result.state is state
                assert ledger.executed == [
                    (b"paid", result.receipt.transaction_id or "", "argument")
                ]
                await pass_time(4)
                found = [m for m in await stored(cluster, "orders") if m.body == b"paid"]
                assert len(found) == count
                if found:
                    assert found[0].message_id == result.receipt.message_id
                    assert (found[0].tag, found[0].properties["PGROUP"]) == ("t", "payers")
                    assert "DELAY" not in found[0].properties

    run(main())


@pytest.mark.parametrize("namespace", ["", "NS"])
@pytest.mark.parametrize(("state", "count"), [(COMMIT, 1), (ROLLBACK, 0)])
def test_a_broker_asks_when_it_was_told_nothing(
    tmp_path: Path, state: TransactionState, count: int, namespace: str
) -> None:
    async def main() -> None:
        async with MemoryCluster(tmp_path) as cluster:
            ledger = Ledger(RuntimeError("the database is away"), state)
            client = ClientSettings(
                name_servers=cluster.name_server_addresses,
                client_ip="10.0.0.1",
                namespace=namespace,
            )
            async with transactions(cluster, ledger, client) as producer:
                await producer.send(Message("orders", b"plain"))
                result = await producer.send_in_transaction(Message("orders", b"paid"))
                assert result.state is UNKNOWN
                await pass_time(70)
                assert len(ledger.checked) == 1
                (asked,) = ledger.checked
                assert (asked.body, asked.topic) == (b"paid", "orders")
                assert asked.message_id == result.receipt.message_id
                await pass_time(5)
                topic = f"{namespace}%orders" if namespace else "orders"
                found = [m for m in await stored(cluster, topic) if m.body == b"paid"]
                assert len(found) == count
                assert [context.is_from_check for context in ledger.ended] == [False, True]
                assert ledger.ended[1].state == state.value

    run(main())


def test_another_producer_of_the_group_answers_for_one_that_died(tmp_path: Path) -> None:
    async def main() -> None:
        async with MemoryCluster(tmp_path) as cluster:
            first = Ledger(UNKNOWN, UNKNOWN)
            async with transactions(cluster, first) as producer:
                await producer.send(Message("orders", b"plain"))
                await producer.send_in_transaction(Message("orders", b"paid"))
            second = Ledger(UNKNOWN, COMMIT)
            async with transactions(cluster, second) as producer:
                await producer.queues("orders")
                await producer.send(Message("orders", b"plain"))
                await pass_time(80)
                assert not first.checked
                assert len(second.checked) == 1
                assert b"paid" in {m.body for m in await stored(cluster, "orders")}

    run(main())
