"""Brokers whose answers make no sense, and the fields that a client puts into every request."""

from collections.abc import Awaitable, Callable
from dataclasses import replace
from pathlib import Path

import pytest
from unit.client.producing import ScriptedBroker, accepts, fail, producer_of, settings

from downrange.client.acl_signature import Credentials
from downrange.client.errors import BadAnswerError
from downrange.client.message import Message
from downrange.client.session import Session
from downrange.model.topics import MessageQueue
from downrange.protocol.command import Command, response
from downrange.protocol.headers.pull import PullRequest
from downrange.protocol.headers.query import QueryMessageRequest
from downrange.protocol.request_codes import RequestCode
from downrange.protocol.response_codes import ResponseCode
from downrange.remoting.connection import Handler
from downrange.remoting.server import RemotingServer
from downrange.runtime.service import Supervisor
from downrange.testing.cluster import MemoryCluster
from downrange.testing.virtual_time import run

QUEUE = MessageQueue("orders", "b", 0)
PORT = 20_000
ADDRESS = f"127.0.0.1:{PORT}"
PULL = PullRequest(
    consumer_group="g",
    topic="orders",
    queue_id=0,
    queue_offset=0,
    max_msg_nums=32,
    sys_flag=0,
    commit_offset=0,
    suspend_timeout_millis=0,
    sub_version=0,
)
QUERY = QueryMessageRequest(topic="orders", key="k", max_num=1, begin_timestamp=0, end_timestamp=1)
CALLS: dict[RequestCode, Callable[[Session], Awaitable[object]]] = {
    RequestCode.GET_MAX_OFFSET: lambda one: one.calls.max_offset(ADDRESS, QUEUE),
    RequestCode.GET_MIN_OFFSET: lambda one: one.calls.min_offset(ADDRESS, QUEUE),
    RequestCode.QUERY_CONSUMER_OFFSET: lambda one: one.calls.consumer_offset(ADDRESS, "g", QUEUE),
    RequestCode.GET_EARLIEST_MSG_STORETIME: lambda one: one.calls.earliest_store_time_ms(
        ADDRESS, QUEUE
    ),
    RequestCode.GET_CONSUMER_LIST_BY_GROUP: lambda one: one.calls.consumer_ids(ADDRESS, "g"),
    RequestCode.LOCK_BATCH_MQ: lambda one: one.calls.lock_queues(ADDRESS, "g", "me", [QUEUE]),
    RequestCode.QUERY_MESSAGE: lambda one: one.calls.query_messages(ADDRESS, QUERY),
    RequestCode.VIEW_MESSAGE_BY_ID: lambda one: one.calls.view_message(ADDRESS, 0),
    RequestCode.PULL_MESSAGE: lambda one: one.calls.pull(ADDRESS, PULL, timeout_s=3),
}
NONSENSE = {
    "offset": "many",
    "timestamp": "soon",
    "nextBeginOffset": "x",
}


def _nonsense(request: Command, _: object) -> Command:
    return response(request, 0, ext_fields=NONSENSE, body=b"{[")


@pytest.mark.parametrize("code", CALLS, ids=lambda code: code.name)
def test_an_answer_without_sense_is_an_error_of_the_client(
    tmp_path: Path, code: RequestCode
) -> None:
    async def main() -> None:
        async with MemoryCluster(tmp_path, broker_names=()) as cluster:
            supervisor = Supervisor(fail)
            server = RemotingServer(cluster.network, supervisor, {code: _nonsense})
            await server.listen("127.0.0.1", PORT)
            session = Session(cluster.client_settings(), "me@1", cluster.surroundings())
            await session.start()
            with pytest.raises(BadAnswerError, match=r"the answer of broker .*makes no sense"):
                await CALLS[code](session)
            await session.shutdown()
            await server.stop()
            await supervisor.stop()

    run(main())


def test_a_receipt_without_sense_is_one_too(tmp_path: Path) -> None:
    def answer(request: Command) -> Command:
        return response(request, 0, ext_fields={"msgId": "A", "queueId": "left"})

    async def main() -> None:
        async with MemoryCluster(tmp_path, broker_names=()) as cluster:
            broker = ScriptedBroker(cluster, "b", PORT, answer)
            await broker.start("orders")
            async with producer_of(cluster, settings=settings(retries=0)) as producer:
                with pytest.raises(BadAnswerError, match="left"):
                    await producer.send(Message("orders", b"x"))
            await broker.stop()

    run(main())


def test_a_namespace_of_version_2_is_told_in_every_request_and_signed(tmp_path: Path) -> None:
    async def main() -> None:
        async with MemoryCluster(tmp_path, broker_names=()) as cluster:
            broker = ScriptedBroker(cluster, "b", PORT, accepts)
            await broker.start("orders")
            client = replace(
                cluster.client_settings(),
                namespace_v2="tenant",
                credentials=Credentials(access_key="me", secret_key="secret"),
            )
            async with producer_of(cluster, client=client) as producer:
                await producer.send(Message("orders", b"x"))
                await producer.send_one_way(Message("orders", b"y"))
            await broker.stop()
            for request in broker.requests:
                fields = request.ext_fields or {}
                assert (fields["nsd"], fields["ns"], fields["b"]) == ("true", "tenant", "orders")
            fields = dict(broker.requests[0].ext_fields or {})
            assert client.credentials is not None
            assert client.credentials.sign(fields, b"x") == fields
            assert len(broker.requests) == 2

    run(main())


def test_a_broker_without_lite_pulls_is_asked_for_plain_ones_and_remembered(
    tmp_path: Path,
) -> None:
    asked: list[int] = []

    def found_nothing(request: Command, _: object) -> Command:
        asked.append(request.code)
        fields = {"suggestWhichBrokerId": "0"}
        offsets = {"nextBeginOffset": "7", "minOffset": "0", "maxOffset": "7"}
        return response(request, ResponseCode.PULL_NOT_FOUND, ext_fields=fields | offsets)

    def unknown(request: Command, _: object) -> Command:
        asked.append(request.code)
        return response(request, ResponseCode.REQUEST_CODE_NOT_SUPPORTED, remark="not supported")

    async def main() -> None:
        async with MemoryCluster(tmp_path, broker_names=()) as cluster:
            supervisor = Supervisor(fail)
            handlers: dict[int, Handler] = {
                RequestCode.PULL_MESSAGE: found_nothing,
                RequestCode.LITE_PULL_MESSAGE: unknown,
            }
            server = RemotingServer(cluster.network, supervisor, handlers)
            await server.listen("127.0.0.1", PORT)
            session = Session(cluster.client_settings(), "me@1", cluster.surroundings())
            await session.start()
            for _ in range(2):
                answer = await session.calls.pull(ADDRESS, PULL, timeout_s=3, lite=True)
                assert answer.header.next_begin_offset == 7
            await session.shutdown()
            await server.stop()
            await supervisor.stop()

    run(main())
    assert asked == [361, 11, 11]
