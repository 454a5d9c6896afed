"""Locks over the wire; the answer is that of a real 5.5.0."""

from collections.abc import Callable

from downrange.broker.handlers.lock import LockHandler
from downrange.broker.queue_locks import QueueLocks
from downrange.model.topics import MessageQueue
from downrange.protocol.bodies.json_body import decode_body, encode_body
from downrange.protocol.bodies.queues import LockRequest, LockResponse
from downrange.protocol.command import Command, request
from downrange.protocol.request_codes import RequestCode
from downrange.remoting.connection import Connection
from downrange.testing.clock import ManualClock

QUEUES = tuple(MessageQueue("t", "broker-a", queue_id) for queue_id in range(2))


def _has_queue(topic: str, queue_id: int) -> bool:
    return topic == "t" and 0 <= queue_id < 2


def test_queues_are_locked_and_given_back(
    clock: ManualClock, connect: Callable[[], Connection]
) -> None:
    handler = LockHandler(QueueLocks(clock), lambda group: group == "g", _has_queue)
    routes = handler.routes()
    assert sorted(routes) == [41, 42]

    def call(code: int, client: str, queues: tuple[MessageQueue, ...]) -> Command:
        body = LockRequest(consumer_group="g", client_id=client, mq_set=queues)
        answer = routes[code](request(code, opaque=1, body=encode_body(body)), connect())
        assert isinstance(answer, Command)
        assert answer.code == 0
        return answer

    first = call(RequestCode.LOCK_BATCH_MQ, "a", QUEUES[:1])
    assert first.body == b'{"lockOKMQSet":[{"brokerName":"broker-a","queueId":0,"topic":"t"}]}'
    second = call(RequestCode.LOCK_BATCH_MQ, "b", QUEUES)
    assert decode_body(LockResponse, second.body).locked == QUEUES[1:]
    assert call(RequestCode.UNLOCK_BATCH_MQ, "a", QUEUES).body is None
    third = call(RequestCode.LOCK_BATCH_MQ, "b", QUEUES)
    assert decode_body(LockResponse, third.body).locked == QUEUES


def test_what_does_not_exist_is_never_locked(
    clock: ManualClock, connect: Callable[[], Connection]
) -> None:
    """A peer could make the broker keep any number of locks."""
    locks = QueueLocks(clock)
    routes = LockHandler(locks, lambda group: group == "g", _has_queue).routes()
    absurd = tuple(MessageQueue("t", "broker-a", queue_id) for queue_id in (-1, 2, 2**31 - 1))
    elsewhere = (MessageQueue("nowhere", "broker-a", 0),)
    for group, wanted, locked in (
        ("g", (*absurd, *elsewhere, *QUEUES), QUEUES),
        ("nobody", QUEUES, ()),
    ):
        body = LockRequest(consumer_group=group, client_id="a", mq_set=wanted)
        answer = routes[RequestCode.LOCK_BATCH_MQ](
            request(RequestCode.LOCK_BATCH_MQ, opaque=1, body=encode_body(body)), connect()
        )
        assert isinstance(answer, Command)
        assert decode_body(LockResponse, answer.body).locked == locked
        assert [one for one in wanted if locks.holder(group, one)] == list(locked)
