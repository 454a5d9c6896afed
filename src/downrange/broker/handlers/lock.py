"""LOCK_BATCH_MQ and UNLOCK_BATCH_MQ: a consumer in order takes and gives back its queues."""

from collections.abc import Callable

from downrange.broker.queue_locks import QueueLocks
from downrange.protocol.bodies.json_body import decode_body, encode_body
from downrange.protocol.bodies.queues import LockRequest, LockResponse
from downrange.protocol.command import Command, response
from downrange.protocol.request_codes import RequestCode
from downrange.protocol.response_codes import ResponseCode
from downrange.remoting.connection import Answer, Connection, Handler


class LockHandler:
    """Serves the locks of this broker's queues."""

    def __init__(
        self,
        locks: QueueLocks,
        has_group: Callable[[str], bool],
        has_queue: Callable[[str, int], bool],
    ) -> None:
        self._locks = locks
        self._has_group = has_group
        self._has_queue = has_queue

    def routes(self) -> dict[int, Handler]:
        """Which codes this serves."""
        return {
            RequestCode.LOCK_BATCH_MQ: self.lock,
            RequestCode.UNLOCK_BATCH_MQ: self.unlock,
        }

    def lock(self, request: Command, _: Connection) -> Answer:
        """Lock what is free; the answer names what the client holds.

        Queues and groups that do not exist are passed over: RocketMQ locks them, and a peer could
        have it keep any number of locks. To a client it looks as if another one held them.
        """
        body = decode_body(LockRequest, request.body)
        queues = [one for one in body.mq_set if self._has_queue(one.topic, one.queue_id)]
        if not self._has_group(body.consumer_group):
            queues.clear()
        locked = self._locks.lock(body.consumer_group, body.client_id, queues)
        return response(
            request, ResponseCode.SUCCESS, body=encode_body(LockResponse(locked=tuple(locked)))
        )

    def unlock(self, request: Command, _: Connection) -> Answer:
        """Give locks back."""
        body = decode_body(LockRequest, request.body)
        self._locks.unlock(body.consumer_group, body.client_id, body.mq_set)
        return response(request, ResponseCode.SUCCESS)
