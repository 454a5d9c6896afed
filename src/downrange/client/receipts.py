"""What the answer to a send says: where the message is, or why it is nowhere."""

from typing import Final

from downrange.client.errors import BadAnswerError, BrokerRefusal
from downrange.client.message import SendReceipt, SendStatus
from downrange.client.namespace import without_namespace
from downrange.client.outgoing import Outgoing
from downrange.model.topics import MessageQueue
from downrange.protocol.command import Command
from downrange.protocol.response_codes import ResponseCode

SUCCESS: Final = int(ResponseCode.SUCCESS)
STATUS: Final = {
    int(ResponseCode.SUCCESS): SendStatus.SEND_OK,
    int(ResponseCode.FLUSH_DISK_TIMEOUT): SendStatus.FLUSH_DISK_TIMEOUT,
    int(ResponseCode.FLUSH_SLAVE_TIMEOUT): SendStatus.FLUSH_SLAVE_TIMEOUT,
    int(ResponseCode.SLAVE_NOT_AVAILABLE): SendStatus.SLAVE_NOT_AVAILABLE,
}


class Receipts:
    """Reads answers for a producer."""

    def __init__(self, namespace: str) -> None:
        self._namespace = namespace

    def checked(
        self, answer: Command, outgoing: Outgoing, queue: MessageQueue, address: str
    ) -> SendReceipt:
        """The receipt, or the refusal raised."""
        if answer.code not in STATUS:
            raise refusal(answer, address)
        return self.receipt(answer, outgoing, queue)

    def receipt(self, answer: Command, outgoing: Outgoing, queue: MessageQueue) -> SendReceipt:
        """What a broker says about a message that it has stored."""
        fields = answer.ext_fields or {}
        get = fields.get
        try:
            queue_id = int(get("queueId", queue.queue_id))
            queue_offset = int(get("queueOffset", -1))
        except ValueError as error:
            raise BadAnswerError(f"broker {queue.broker_name}", str(error)) from None
        if self._namespace:
            topic = without_namespace(queue.topic, self._namespace)
            queue = MessageQueue(topic, queue.broker_name, queue_id)
        elif queue_id != queue.queue_id:
            queue = MessageQueue(queue.topic, queue.broker_name, queue_id)
        return SendReceipt(
            STATUS[answer.code],
            get("batchUniqId") or outgoing.message_id,
            get("msgId", ""),
            queue,
            queue_offset,
            get("transactionId"),
            get("recallHandle"),
            get("MSG_REGION") or "DefaultRegion",
            get("TRACE_ON") != "false",
        )


def refusal(answer: Command, address: str) -> BrokerRefusal:
    """What a broker says about a message that it has not stored."""
    return BrokerRefusal(answer.code, answer.remark or "", f"broker {address}")
