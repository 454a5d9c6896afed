"""LOCK_BATCH_MQ and UNLOCK_BATCH_MQ: a consumer in order takes and gives back its queues."""

from downrange.broker.queue_locks import QueueLocks
from downrange.protocol.bodies.json_body import decode_body, encode_body
from downrange.protocol.bodies.queues import LockRequest, LockResponse
from downrange.protocol.command import Command, response
from downrange.protocol.request_codes import RequestCode
from downrange.protocol.response_codes import ResponseCode
from downrange.remoting.connection import Answer, Connection, Handler


class LockHandler:
    """Serves the locks of this broker's queues."""

    def __init__(self, locks: QueueLocks) -> None:
        self._locks = locks

    def routes(self) -> dict[int, Handler]:
        """Which codes this serves."""
        return {
            RequestCode.LOCK_BATCH_MQ: self.lock,
            RequestCode.UNLOCK_BATCH_MQ: self.unlock,
        }

    def lock(self, request: Command, _: Connection) -> Answer:
        """Lock what is free; the answer names what the client holds."""
        body = decode_body(LockRequest, request.body)
        locked = self._locks.lock(body.consumer_group, body.client_id, body.mq_set)
        return response(
            request, ResponseCode.SUCCESS, body=encode_body(LockResponse(locked=tuple(locked)))
        )

    def unlock(self, request: Command, _: Connection) -> Answer:
        """Give locks back."""
        body = decode_body(LockRequest, request.body)
        self._locks.unlock(body.consumer_group, body.client_id, body.mq_set)
        return response(request, ResponseCode.SUCCESS)
