"""Pulls of a range against a peer that does everything a broker may do."""

import logging
from collections.abc import Callable

import pytest
from unit.spark.scripted_server import Script, ScriptedServer, pull_answer, pulled

from downrange.client.errors import (
    BrokerRefusal,
    BrokerUnreachableError,
    ClientTimeoutError,
    NoNameServerError,
    RocketMQError,
)
from downrange.protocol.command import Command, request, response
from downrange.protocol.headers.pull import BULK_FIELD
from downrange.protocol.request_codes import RequestCode
from downrange.protocol.response_codes import ResponseCode
from downrange.spark.cluster import Cluster
from downrange.spark.connecting import Connecting
from downrange.spark.fetch import DataLossError, RangeReader
from downrange.spark.link import Link
from downrange.spark.planning import QueueRange
from downrange.spark.read_options import read_options

PULL = RequestCode.PULL_MESSAGE
MOVED = ResponseCode.PULL_OFFSET_MOVED
NOT_FOUND = ResponseCode.PULL_NOT_FOUND


def offsets(server: ScriptedServer, start: int, end: int, **more: str) -> list[int]:
    """The offsets that a task reads, without real waits."""
    options = read_options(
        {
            "nameServers": server.address,
            "subscribe": "t",
            "fetchRetries": "3",
            "fetchTimeoutMs": "20000",
            "fields": "body",
            **more,
        },
        is_stream=False,
    )
    reader = RangeReader(options, sleep=lambda _: None)
    try:
        batches = list(reader.read([QueueRange("t", "b", 0, start, end)]))
    finally:
        reader.close()
    return [int(body) for batch in batches for body in batch.column("body").to_pylist()]


def on_pulls(answer: Callable[[Command, int], Command | None]) -> Script:
    """A script that counts pulls; None of it closes the connection."""
    count = 0

    def script(command: Command) -> list[Command] | None:
        nonlocal count
        if command.code != PULL:
            return []
        count += 1
        found = answer(command, count)
        return None if found is None else [found]

    return script


def some(command: Command, count: int = 4) -> Command:
    start = pulled(command).queue_offset
    count = min(count, pulled(command).max_msg_nums)
    return pull_answer(command, start + count, count=count)


def test_a_range_is_read_to_its_end_and_not_further() -> None:
    with ScriptedServer(on_pulls(lambda command, _: some(command))) as server:
        assert offsets(server, 3, 16) == list(range(3, 16))
        pulls = [one for one in server.requests if one.code == PULL]
        asked = [pulled(one) for one in pulls]
    assert [one.queue_offset for one in asked] == [3, 7, 11, 15]
    assert [one.max_msg_nums for one in asked] == [13, 9, 5, 1]
    assert all((one.ext_fields or {}).get(BULK_FIELD) == "true" for one in pulls)
    assert {one.consumer_group for one in asked} == {"TOOLS_CONSUMER"}


def test_more_than_was_asked_for_is_cut_off() -> None:
    def answer(command: Command, _: int) -> Command:
        start = pulled(command).queue_offset
        return pull_answer(command, start + 10, count=10)

    with ScriptedServer(on_pulls(answer)) as server:
        assert offsets(server, 3, 16) == list(range(3, 16))


def test_a_lost_connection_and_a_broker_that_goes_are_tried_again() -> None:
    def answer(command: Command, count: int) -> Command | None:
        if count in {2, 5}:
            return None
        if count == 3:
            return response(command, ResponseCode.GO_AWAY)
        if count == 6:
            return response(command, ResponseCode.SYSTEM_BUSY, remark="busy")
        return some(command)

    with ScriptedServer(on_pulls(answer)) as server:
        assert offsets(server, 0, 12) == list(range(12))
        assert server.connections >= 4


def test_a_broker_that_stays_away_is_an_error_that_names_it() -> None:
    with (
        ScriptedServer(on_pulls(lambda _, __: None)) as server,
        pytest.raises(BrokerUnreachableError, match="closed the connection"),
    ):
        offsets(server, 0, 12)


def test_a_refusal_is_not_tried_again() -> None:
    def answer(command: Command, count: int) -> Command:
        assert count == 1
        return response(command, ResponseCode.NO_PERMISSION, remark="not you")

    with (
        ScriptedServer(on_pulls(answer)) as server,
        pytest.raises(BrokerRefusal, match="not you"),
    ):
        offsets(server, 0, 12)


def test_expired_messages_are_an_error_or_a_gap_with_its_size(
    caplog: pytest.LogCaptureFixture,
) -> None:
    def answer(command: Command, _: int) -> Command:
        if pulled(command).queue_offset < 7:
            return pull_answer(command, 7, code=MOVED, low=7)
        return some(command)

    with ScriptedServer(on_pulls(answer)) as server:
        with pytest.raises(DataLossError, match="5 messages from offset 2 to 7 are not there"):
            offsets(server, 2, 12)
        with caplog.at_level(logging.WARNING):
            assert offsets(server, 2, 12, failOnDataLoss="false") == [7, 8, 9, 10, 11]
        assert "5 messages from offset 2 to 7" in caplog.text
        assert offsets(server, 2, 6, failOnDataLoss="false") == []


def test_an_end_that_the_queue_never_reaches_is_a_loss() -> None:
    def answer(command: Command, _: int) -> Command:
        start = pulled(command).queue_offset
        if start < 8:
            return pull_answer(command, min(start + 4, 8), count=min(4, 8 - start), high=8)
        return pull_answer(command, start, code=NOT_FOUND, high=8)

    with ScriptedServer(on_pulls(answer)) as server:
        with pytest.raises(DataLossError, match="4 messages from offset 8 to 12"):
            offsets(server, 0, 12)
        assert offsets(server, 0, 12, failOnDataLoss="false") == list(range(8))


def test_a_group_that_an_operator_moves_moves_nothing_here() -> None:
    def answer(command: Command, count: int) -> Command:
        if count == 2:
            return pull_answer(command, 50, code=MOVED)
        return some(command)

    with ScriptedServer(on_pulls(answer)) as server:
        assert offsets(server, 0, 12) == list(range(12))


def test_answers_without_a_match_lead_on() -> None:
    def answer(command: Command, _: int) -> Command:
        start = pulled(command).queue_offset
        if start < 8:
            return pull_answer(command, start + 4, code=ResponseCode.PULL_RETRY_IMMEDIATELY)
        return some(command)

    with ScriptedServer(on_pulls(answer)) as server:
        assert offsets(server, 0, 12) == [8, 9, 10, 11]


def test_a_broker_that_stands_still_is_given_up() -> None:
    def answer(command: Command, _: int) -> Command:
        return pull_answer(command, pulled(command).queue_offset)

    with (
        ScriptedServer(on_pulls(answer)) as server,
        pytest.raises(RocketMQError, match="nothing at offset 0, though the queue reaches"),
    ):
        offsets(server, 0, 12)


def test_answers_may_come_in_any_order_with_requests_of_the_peer_between() -> None:
    held: list[Command] = []

    def script(command: Command) -> list[Command]:
        held.append(response(command, 0, remark=str(command.code)))
        if len(held) < 3:
            return [request(RequestCode.NOTIFY_CONSUMER_IDS_CHANGED, opaque=1, one_way=True)]
        return held[::-1]

    with ScriptedServer(script) as server:
        link = Link(server.address, timeout_s=20.0)
        answers = link.ask_all([(1, {}), (2, {}), (3, {})])
        link.close()
    assert [answer.remark for answer in answers] == ["1", "2", "3"]


def test_a_peer_that_does_not_answer_is_not_waited_for_for_ever() -> None:
    now_s = iter(range(0, 10_000, 4))

    def script(_: Command) -> list[Command]:
        return [request(RequestCode.NOTIFY_CONSUMER_IDS_CHANGED, opaque=1, one_way=True)] * 50

    with ScriptedServer(script) as server:
        link = Link(server.address, timeout_s=20.0, monotonic_s=lambda: float(next(now_s)))
        with pytest.raises(ClientTimeoutError, match="did not answer in 20 s"):
            link.ask(1, {})
        link.close()


def test_no_name_server_says_which_option() -> None:
    with ScriptedServer(lambda _: None) as server:
        connecting = Connecting(name_servers=(server.address,), retries=1)
        with (
            Cluster(connecting, sleep=lambda _: None) as cluster,
            pytest.raises(NoNameServerError, match="option 'nameServers'"),
        ):
            cluster.topics()
