"""Clients: who is connected, and what is passed on to them."""

import asyncio
from pathlib import Path

from unit.broker.admin.desk import BROKER, GROUP, TOPIC, Desk, at_desk

from downrange.model.topics import MessageQueue
from downrange.protocol.bodies.connections import (
    AllProducers,
    ConsumerConnections,
    ProducerConnections,
)
from downrange.protocol.bodies.json_body import decode_body, encode_body
from downrange.protocol.bodies.queues import ConsumerStatus
from downrange.protocol.command import Command, response
from downrange.protocol.message_id import encode_message_id
from downrange.protocol.record import decode_record
from downrange.protocol.request_codes import RequestCode as Code
from downrange.protocol.response_codes import ResponseCode
from downrange.protocol.versions import CURRENT_VERSION
from downrange.remoting.connection import Answer, Connection


def test_the_clients_of_a_consumer_group_are_listed_with_their_subscriptions(
    tmp_path: Path,
) -> None:
    async def scenario(desk: Desk) -> None:
        await desk.join("c@1")
        answer = await desk.ask(Code.GET_CONSUMER_CONNECTION_LIST, consumerGroup=GROUP)
        found = decode_body(ConsumerConnections, answer.body)
        (client,) = found.connection_set
        assert (client.client_id, client.language, client.version) == (
            "c@1",
            "PYTHON",
            CURRENT_VERSION,
        )
        assert client.client_addr.startswith("127.0.0.1:")
        assert found.subscription_table[TOPIC].sub_string == "*"
        assert found.consume_type == "CONSUME_PASSIVELY"
        assert found.message_model == "CLUSTERING"
        assert found.consume_from_where == "CONSUME_FROM_LAST_OFFSET"

    at_desk(tmp_path, scenario)


def test_a_group_without_clients_is_not_online(tmp_path: Path) -> None:
    async def scenario(desk: Desk) -> None:
        answer = await desk.ask(Code.GET_CONSUMER_CONNECTION_LIST, consumerGroup=GROUP)
        assert answer.code == ResponseCode.CONSUMER_NOT_ONLINE
        assert answer.remark == "the consumer group[G] not online"
        answer = await desk.ask(Code.GET_PRODUCER_CONNECTION_LIST, producerGroup="pg")
        assert (answer.code, answer.remark) == (1, "the producer group[pg] not exist")

    at_desk(tmp_path, scenario)


def test_producers_are_listed_by_group_and_all_together(tmp_path: Path) -> None:
    async def scenario(desk: Desk) -> None:
        answer = await desk.ask(Code.GET_ALL_PRODUCER_INFO)
        assert answer.body == b'{"data":{}}'
        await desk.join("p@1", None, producer_group="pg")
        answer = await desk.ask(Code.GET_PRODUCER_CONNECTION_LIST, producerGroup="pg")
        (client,) = decode_body(ProducerConnections, answer.body).connection_set
        assert client.client_id == "p@1"
        answer = await desk.ask(Code.GET_ALL_PRODUCER_INFO, noSuchField=1)
        (info,) = decode_body(AllProducers, answer.body).data["pg"]
        assert info.remote_ip == "/" + client.client_addr
        assert info.last_update_timestamp == desk.clock.wall_ms()

    at_desk(tmp_path, scenario)


def test_a_clients_own_answer_comes_back_as_it_is(tmp_path: Path) -> None:
    async def scenario(desk: Desk) -> None:
        asked: list[Command] = []

        def info(request: Command, _: Connection) -> Answer:
            asked.append(request)
            return response(request, 7, remark="busy", ext_fields={"a": "b"}, body=b"{}")

        await desk.join("c@1", serves={Code.GET_CONSUMER_RUNNING_INFO: info})
        answer = await desk.ask(
            Code.GET_CONSUMER_RUNNING_INFO, consumerGroup=GROUP, clientId="c@1", jstackEnable=True
        )
        assert (answer.code, answer.remark, answer.body) == (7, "busy", b"{}")
        assert answer.ext_fields == {"a": "b"}
        assert asked[0].ext_fields == {
            "consumerGroup": GROUP,
            "clientId": "c@1",
            "jstackEnable": "true",
        }

    at_desk(tmp_path, scenario)


def test_a_client_that_is_away_silent_or_too_old_cannot_be_asked(tmp_path: Path) -> None:
    async def never(_request: Command, _: Connection) -> Answer:
        await asyncio.get_running_loop().create_future()
        raise AssertionError

    async def scenario(desk: Desk) -> None:
        code = Code.GET_CONSUMER_RUNNING_INFO
        answer = await desk.ask(code, consumerGroup=GROUP, clientId="x")
        assert (answer.code, answer.remark) == (1, "The Consumer <G> <x> not online")
        connection = await desk.join("c@1", serves={code: never})
        answer = await desk.ask(code, consumerGroup=GROUP, clientId="c@1")
        assert answer.code == ResponseCode.CONSUME_MSG_TIMEOUT
        asking = asyncio.ensure_future(desk.ask(code, consumerGroup=GROUP, clientId="c@1"))
        asyncio.get_running_loop().call_later(1.0, connection.abort)
        answer = await asking
        assert answer.code == ResponseCode.SYSTEM_ERROR
        assert (answer.remark or "").startswith("invoke consumer <G> <c@1> Exception: ")
        await desk.join("c@2")
        client = desk.tables.consumers.find_client(GROUP, "c@2")
        assert client is not None
        client.version = 1
        answer = await desk.ask(code, consumerGroup=GROUP, clientId="c@2")
        assert answer.code == ResponseCode.SYSTEM_ERROR
        assert "V3_1_8_SNAPSHOT" in (answer.remark or "")

    at_desk(tmp_path, scenario)


def test_a_message_is_handed_to_one_client_with_what_the_broker_knows(tmp_path: Path) -> None:
    async def scenario(desk: Desk) -> None:
        await desk.create()
        desk.put(1)
        asked: list[Command] = []

        def consume(request: Command, _: Connection) -> Answer:
            asked.append(request)
            return response(request, 0, body=b'{"consumeResult":"CR_SUCCESS"}')

        await desk.join("c@1", serves={Code.CONSUME_MESSAGE_DIRECTLY: consume})
        answer = await desk.ask(
            Code.CONSUME_MESSAGE_DIRECTLY,
            consumerGroup=GROUP,
            clientId="c@1",
            topic=TOPIC,
            msgId=encode_message_id(desk.store.settings.store_host, 0),
        )
        assert answer.body == b'{"consumeResult":"CR_SUCCESS"}'
        (request,) = asked
        assert request.body is not None
        assert decode_record(request.body).body == b"0"
        assert request.ext_fields is not None
        assert request.ext_fields["brokerName"] == BROKER
        assert request.ext_fields["topicSysFlag"] == "0"
        assert request.ext_fields["groupSysFlag"] == "0"

    at_desk(tmp_path, scenario)


def test_a_message_that_is_none_is_not_handed_on(tmp_path: Path) -> None:
    async def scenario(desk: Desk) -> None:
        await desk.create()
        desk.put(1)
        await desk.join("c@1")
        host = desk.store.settings.store_host
        for message_id in ("", "zz", encode_message_id(host, 5), encode_message_id(host, 1 << 40)):
            answer = await desk.ask(
                Code.CONSUME_MESSAGE_DIRECTLY,
                consumerGroup=GROUP,
                clientId="c@1",
                msgId=message_id,
            )
            assert answer.code == ResponseCode.SYSTEM_ERROR, message_id
            assert answer.remark

    at_desk(tmp_path, scenario)


def status_of(offset: int) -> bytes:
    table = {MessageQueue(TOPIC, BROKER, 0): offset}
    return encode_body(ConsumerStatus(message_queue_table=table))


def test_the_status_of_all_clients_comes_together_and_who_fails_is_left_out(
    tmp_path: Path,
) -> None:
    async def scenario(desk: Desk) -> None:
        code = Code.GET_CONSUMER_STATUS_FROM_CLIENT
        for number in (1, 2):

            def tell(request: Command, _: Connection, body: bytes = status_of(number)) -> Answer:
                return response(request, 0, body=body)

            await desk.join(f"c@{number}", serves={code: tell})

        def nonsense(request: Command, _: Connection) -> Answer:
            return response(request, 0, body=b"{")

        await desk.join("c@3", serves={code: nonsense})
        await desk.join("c@4")  # answers that it does not know the code

        ask = Code.INVOKE_BROKER_TO_GET_CONSUMER_STATUS
        answer = await desk.ask(ask, topic=TOPIC, group=GROUP, clientAddr="")
        found = decode_body(ConsumerStatus, answer.body)
        queue = MessageQueue(TOPIC, BROKER, 0)
        assert found.consumer_table == {"c@1": {queue: 1}, "c@2": {queue: 2}}
        answer = await desk.ask(ask, topic=TOPIC, group=GROUP, clientAddr="c@2")
        assert decode_body(ConsumerStatus, answer.body).consumer_table == {"c@2": {queue: 2}}

    at_desk(tmp_path, scenario)


def test_the_status_of_a_group_that_is_not_online_is_refused(tmp_path: Path) -> None:
    async def scenario(desk: Desk) -> None:
        answer = await desk.ask(Code.INVOKE_BROKER_TO_GET_CONSUMER_STATUS, topic=TOPIC, group=GROUP)
        assert answer.code == ResponseCode.SYSTEM_ERROR
        assert answer.remark == "No Any Consumer online in the consumer group: [G]"

    at_desk(tmp_path, scenario)
