"""Clients of producer groups: joining, leaving, and who is asked next."""

from collections.abc import Callable

import pytest

from downrange.broker.producer_table import ProducerTable
from downrange.protocol.languages import LanguageCode
from downrange.remoting.connection import Connection
from downrange.testing.clock import ManualClock

Connect = Callable[[], Connection]


@pytest.fixture
def table(clock: ManualClock) -> ProducerTable:
    return ProducerTable(clock)


def test_a_producer_is_known_from_its_heartbeat_until_it_leaves(
    table: ProducerTable, connect: Connect, clock: ManualClock
) -> None:
    a = connect()
    table.register(a, "a", "g", language=LanguageCode.CPP, version=3)
    table.register(a, "a", "h")
    assert table.groups() == ["g", "h"]
    (client,) = table.clients("g")
    assert (client.client_id, client.language, client.version) == ("a", LanguageCode.CPP, 3)
    assert client.last_heartbeat_ms == clock.wall_ms()
    assert table.unregister(a, "g")
    assert not table.unregister(a, "g")
    assert not table.unregister(a, "unknown")
    assert table.groups() == ["h"]
    table.on_close(a)
    assert (table.groups(), table.clients("h"), table.find("a")) == ([], [], None)


def test_two_minutes_of_silence_end_a_producer(
    table: ProducerTable, connect: Connect, clock: ManualClock
) -> None:
    a, b = connect(), connect()
    table.register(a, "a", "g")
    clock.advance(100_000)
    table.register(b, "b", "g")
    clock.advance(20_001)
    assert table.expire() == [a]
    assert [client.client_id for client in table.clients("g")] == ["b"]


def test_the_clients_of_a_group_are_asked_in_turn(table: ProducerTable, connect: Connect) -> None:
    connections = [connect() for _ in range(3)]
    for number, connection in enumerate(connections):
        table.register(connection, str(number), "g")
    assert [table.pick("g") for _ in range(6)] == connections * 2
    assert table.pick("unknown") is None


def test_who_is_closed_is_never_asked_and_who_does_not_read_only_if_he_must_be(
    table: ProducerTable, connect: Connect
) -> None:
    closed, slow, good = connect(), connect(), connect()
    for name, connection in (("closed", closed), ("slow", slow), ("good", good)):
        table.register(connection, name, "g")
    closed.is_closed = True
    slow.is_writable = False
    assert {table.pick("g") for _ in range(6)} == {good}
    table.unregister(good, "g")
    assert {table.pick("g") for _ in range(6)} == {slow}
    table.unregister(slow, "g")
    assert table.pick("g") is None


def test_a_reply_goes_to_the_newest_connection_of_a_client(
    table: ProducerTable, connect: Connect, clock: ManualClock
) -> None:
    old, new = connect(), connect()
    table.register(old, "a", "g")
    clock.advance(1)
    table.register(new, "a", "h")
    assert table.find("a") is new
    new.is_closed = True
    assert table.find("a") is old
    assert table.find("b") is None
