"""JSON bodies of the real RocketMQ: read and written again they are the same bytes."""

from collections.abc import Callable

import pytest
from golden.test_frames import commands

from downrange.protocol.bodies.assignment import (
    AssignmentRequest,
    AssignmentResponse,
    RequestModeChange,
)
from downrange.protocol.bodies.consumer import ConsumeDirectlyResult, ConsumerList, RunningInfo
from downrange.protocol.bodies.heartbeat import CheckClientConfig, Heartbeat
from downrange.protocol.bodies.json_body import Body, decode_body, encode_body
from downrange.protocol.bodies.queues import ConsumerStatus, LockRequest, LockResponse
from downrange.protocol.bodies.registration import (
    body_crc,
    decode_registration,
    encode_registration,
)
from downrange.protocol.bodies.route import ClusterInfo, TopicRoute, encode_route
from downrange.protocol.bodies.topics import KvTable, TopicList
from downrange.protocol.command import Command
from downrange.protocol.request_codes import RequestCode as Code

REQUEST_BODIES: dict[Code, type[Body]] = {
    Code.HEART_BEAT: Heartbeat,
    Code.CHECK_CLIENT_CONFIG: CheckClientConfig,
    Code.LOCK_BATCH_MQ: LockRequest,
    Code.UNLOCK_BATCH_MQ: LockRequest,
    Code.QUERY_ASSIGNMENT: AssignmentRequest,
    Code.SET_MESSAGE_REQUEST_MODE: RequestModeChange,
}
RESPONSE_BODIES: dict[Code, type[Body]] = {
    Code.GET_CONSUMER_LIST_BY_GROUP: ConsumerList,
    Code.LOCK_BATCH_MQ: LockResponse,
    Code.QUERY_ASSIGNMENT: AssignmentResponse,
    Code.GET_BROKER_CLUSTER_INFO: ClusterInfo,
    Code.GET_ALL_TOPIC_LIST_FROM_NAMESERVER: TopicList,
    Code.GET_KVLIST_BY_NAMESPACE: KvTable,
    Code.GET_CONSUMER_RUNNING_INFO: RunningInfo,
    Code.CONSUME_MESSAGE_DIRECTLY: ConsumeDirectlyResult,
    Code.GET_CONSUMER_STATUS_FROM_CLIENT: ConsumerStatus,
    Code.INVOKE_BROKER_TO_GET_CONSUMER_STATUS: ConsumerStatus,
}


def bodies(code: Code, *, of_responses: bool) -> list[tuple[bytes, bool]]:
    """Bodies about a request code, and whether release 4.9 wrote them."""
    return [
        (command.body, captured.is_from_4_9)
        for captured, command, asked in commands()
        if asked == code and command.is_response == of_responses and command.body
    ]


def check(found: list[tuple[bytes, bool]], rewrite: Callable[[bytes], bytes]) -> None:
    assert found, "the capture has no such body"
    for body, from_4_9 in found:
        again = rewrite(body)
        if from_4_9:
            # 4.9 has fewer members; nothing it wrote may be lost or changed.
            assert rewrite(again) == again
        else:
            assert again == body


@pytest.mark.parametrize("code", REQUEST_BODIES, ids=lambda code: code.name)
def test_a_request_body_written_again_has_the_same_bytes(code: Code) -> None:
    kind = REQUEST_BODIES[code]
    check(bodies(code, of_responses=False), lambda body: encode_body(decode_body(kind, body)))


@pytest.mark.parametrize("code", RESPONSE_BODIES, ids=lambda code: code.name)
def test_a_response_body_written_again_has_the_same_bytes(code: Code) -> None:
    kind = RESPONSE_BODIES[code]
    check(bodies(code, of_responses=True), lambda body: encode_body(decode_body(kind, body)))


def test_a_route_is_written_as_the_name_server_writes_it_for_the_same_asker() -> None:
    requests: dict[tuple[str, str, int, int], Command] = {}
    count = 0
    for captured, command, code in commands():
        if code != Code.GET_ROUTEINFO_BY_TOPIC:
            continue
        place = (captured.capture, captured.session, captured.connection, command.opaque)
        if not command.is_response:
            requests[place] = command
        elif command.body:
            asker = requests[place]
            accepts = (asker.ext_fields or {}).get("acceptStandardJsonOnly") == "true"
            route = decode_body(TopicRoute, command.body)
            again = encode_route(
                route, peer_version=asker.version, accept_standard_json_only=accepts
            )
            assert again == command.body
            count += 1
    assert count > 50


def test_a_registration_read_and_written_again_says_the_same() -> None:
    count = 0
    for _, command, code in commands():
        if code != Code.REGISTER_BROKER or command.is_response:
            continue
        fields = command.ext_fields or {}
        compressed = fields["compressed"] == "true"
        assert command.body is not None
        assert body_crc(command.body) == int(fields["bodyCrc32"])
        registration = decode_registration(command.body, compressed=compressed)
        again = encode_registration(registration, compressed=compressed)
        assert decode_registration(again, compressed=compressed) == registration
        if not compressed:
            assert again == command.body
        count += 1
    assert count > 10
