"""Two brokers with the same name and id: which one keeps its place, and who hears of it."""

import logging
from dataclasses import replace
from pathlib import Path

import pytest
from unit.nameserver.building import (
    MASTER,
    SLAVE,
    Cluster,
    register_fields,
    registration,
    with_name_server,
)

from downrange.model.topics import DataVersion
from downrange.nameserver.broker_names import BrokerFacts, Registered
from downrange.nameserver.name_clashes import REMEMBERED_MAX, REMEMBERED_MS, SILENCE_MS_MAX, Clash
from downrange.nameserver.route_table import RouteTable
from downrange.protocol.bodies.json_body import decode_body
from downrange.protocol.bodies.registration import encode_registration
from downrange.protocol.bodies.route import ClusterInfo, RefusedRegistration
from downrange.protocol.request_codes import RequestCode as Code
from downrange.protocol.response_codes import ResponseCode
from downrange.remoting.client import RemotingClient

OTHER = replace(MASTER, address="10.0.0.8:10911", ha_address="10.0.0.8:10912")


class Peer:
    def close(self) -> None:
        raise AssertionError("the table closes nothing itself")


FIRST, SECOND = Peer(), Peer()


def table_with(facts: BrokerFacts = MASTER, version: DataVersion | None = None) -> RouteTable:
    table = RouteTable()
    body = registration(version=version) if version is not None else registration()
    assert table.register(facts, body, FIRST, 0) == Registered()
    return table


def test_a_live_broker_keeps_its_name_and_id(caplog: pytest.LogCaptureFixture) -> None:
    table = table_with()
    with caplog.at_level(logging.ERROR):
        for at_ms in (0, 30_000, SILENCE_MS_MAX):
            answer = table.register(OTHER, registration("A", "B"), SECOND, at_ms)
            assert answer == Clash("c", "b", 0, MASTER.address, OTHER.address)
    assert table.members("b") == {0: MASTER.address}
    assert table.route("A") is None, "nothing of a refused registration is kept"
    assert len(caplog.records) == 1, "said once, not at every attempt"
    assert MASTER.address in caplog.text and OTHER.address in caplog.text  # noqa: PT018
    assert table.cluster_info().refused_registrations == (
        RefusedRegistration(
            cluster="c",
            broker_name="b",
            broker_id=0,
            holder_addr=MASTER.address,
            refused_addr=OTHER.address,
        ),
    )


def test_a_slave_keeps_its_id_too_and_another_id_is_no_clash() -> None:
    table = table_with(SLAVE)
    thief = replace(SLAVE, address=OTHER.address)
    assert isinstance(table.register(thief, registration(), SECOND, 0), Clash)
    assert isinstance(
        table.register(replace(thief, broker_id=2), registration(), SECOND, 0), Registered
    )


def test_a_broker_of_another_cluster_does_not_take_the_name() -> None:
    table = table_with()
    foreign = replace(OTHER, cluster="d")
    assert isinstance(table.register(foreign, registration(), SECOND, 0), Clash)
    assert table.members("b") == {0: MASTER.address}


def test_a_broker_that_comes_back_elsewhere_replaces_the_one_whose_connection_ended() -> None:
    table = table_with()
    table.peer_closed(FIRST)
    assert table.register(OTHER, registration(), SECOND, 1) == Registered()
    assert table.members("b") == {0: OTHER.address}


def test_a_broker_that_comes_back_elsewhere_replaces_a_silent_one() -> None:
    table = table_with()
    assert isinstance(table.register(OTHER, registration(), SECOND, SILENCE_MS_MAX), Clash)
    assert table.register(OTHER, registration(), SECOND, SILENCE_MS_MAX + 1) == Registered()
    assert table.members("b") == {0: OTHER.address}


def test_a_broker_that_gives_itself_a_new_address_replaces_itself() -> None:
    table = table_with()
    assert table.register(OTHER, registration(), FIRST, 1) == Registered()
    assert table.members("b") == {0: OTHER.address}


def test_a_quick_restart_at_the_same_address_is_no_clash() -> None:
    table = table_with()
    assert table.register(MASTER, registration(), SECOND, 1) == Registered()


def test_a_later_election_takes_the_id_of_a_live_master() -> None:
    table = table_with(version=DataVersion(state_version=1))
    elected = registration(version=DataVersion(state_version=2))
    assert table.register(OTHER, elected, SECOND, 1) == Registered()


def test_a_slave_that_becomes_master_takes_the_id_of_the_live_one() -> None:
    table = table_with()
    table.register(SLAVE, registration(), SECOND, 1)
    promoted = replace(SLAVE, broker_id=0)
    assert table.register(promoted, registration(), SECOND, 2) == Registered()
    assert table.members("b") == {0: SLAVE.address}


def test_a_clash_is_over_when_one_of_the_two_leaves_or_gives_up() -> None:
    for leaver in (MASTER, OTHER):
        table = table_with()
        table.register(OTHER, registration(), SECOND, 0)
        table.unregister("c", "b", 0, leaver.address)
        assert table.cluster_info().refused_registrations is None
    table = table_with()
    table.register(OTHER, registration(), SECOND, 0)
    table.live.heard(MASTER.where, REMEMBERED_MS)
    table.expire(REMEMBERED_MS)
    assert table.cluster_info().refused_registrations is not None
    table.live.heard(MASTER.where, REMEMBERED_MS + 1)
    table.expire(REMEMBERED_MS + 1)
    assert table.cluster_info().refused_registrations is None
    assert table.members("b") == {0: MASTER.address}


def test_made_up_addresses_do_not_fill_the_memory() -> None:
    table = table_with()
    for number in range(REMEMBERED_MAX + 10):
        table.register(replace(OTHER, address=f"10.9.9.9:{number}"), registration(), SECOND, 0)
    assert len(table.cluster_info().refused_registrations or ()) == REMEMBERED_MAX


def test_the_second_broker_is_told_why_and_cannot_unregister_the_first(tmp_path: Path) -> None:
    async def test(cluster: Cluster) -> None:
        await cluster.register(MASTER)
        second = RemotingClient(cluster.network)

        async def ask(code: Code, facts: BrokerFacts, body: bytes | None = None) -> tuple[int, str]:
            fields = register_fields(facts)
            answer = await second.call("127.0.0.1:9876", code, fields, body, timeout_s=3)
            return answer.code, answer.remark or ""

        body = encode_registration(registration(), compressed=False)
        code, remark = await ask(Code.REGISTER_BROKER, OTHER, body)
        assert code == ResponseCode.SYSTEM_ERROR
        assert "already registered by the live broker at 10.0.0.1:10911" in remark
        # One on the same port, which never registered, goes away.
        assert await ask(Code.UNREGISTER_BROKER, MASTER) == (0, "")
        assert await ask(Code.UNREGISTER_BROKER, OTHER) == (0, "")
        answer = await cluster.ask(Code.GET_BROKER_CLUSTER_INFO)
        info = decode_body(ClusterInfo, answer.body)
        assert info.broker_addr_table["b"].broker_addrs == {0: MASTER.address}
        assert await cluster.route("T") is not None
        second.close()

    with_name_server(tmp_path, test)
