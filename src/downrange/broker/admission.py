"""What a topic and a queue must be for anybody to send to them; sends and replies ask alike."""

from downrange.model.names import CLOSED_TOPICS, InvalidNameError, check_topic
from downrange.model.topics import TopicConfig
from downrange.protocol.response_codes import ResponseCode
from downrange.remoting.errors import Refused


def check_sendable(topic: str, now_ms: int, accepts_from_ms: int) -> None:
    """`Refused` if the broker takes nothing yet, or nothing for a topic of this name ever."""
    if accepts_from_ms > now_ms:
        raise Refused(
            ResponseCode.SYSTEM_ERROR, f"broker unable to service, until {accepts_from_ms} ms"
        )
    try:
        check_topic(topic)
    except InvalidNameError as error:
        raise Refused(ResponseCode.INVALID_PARAMETER, str(error)) from error
    if topic in CLOSED_TOPICS:
        raise Refused(
            ResponseCode.NO_PERMISSION, f"Sending message to topic[{topic}] is forbidden."
        )


def check_queue(queue_id: int, config: TopicConfig, topic: str) -> None:
    """`Refused` if the topic has no such queue."""
    if queue_id >= config.write_queue_nums and queue_id >= config.read_queue_nums:
        raise Refused(
            ResponseCode.INVALID_PARAMETER,
            f"request queueId[{queue_id}] is illegal, topic {topic} has "
            f"{config.write_queue_nums} write and {config.read_queue_nums} read queues",
        )
