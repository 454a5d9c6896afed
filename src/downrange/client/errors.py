"""What can go wrong for a user of the client, one class for each answer that a program can give.

Every error has RocketMQ's own number in `code` where it has one, and says in `retriable` whether
the same call may succeed later without a change.
"""

from enum import StrEnum
from typing import Final

from downrange.protocol.response_codes import ResponseCode

# Java's ClientErrorCode.
CONNECT_BROKER_FAILED: Final = 10001
ACCESS_BROKER_TIMEOUT: Final = 10002
BROKER_NOT_EXIST: Final = 10003
NO_NAME_SERVER: Final = 10004
NOT_FOUND_TOPIC: Final = 10005
REQUEST_TIMEOUT: Final = 10006
CREATE_REPLY_FAILED: Final = 10007

REMARK_LENGTH_MAX: Final = 4_096  # of what a peer says; it ends in logs and on terminals


class RocketMQError(Exception):
    """Whatever the client raises on purpose is one of these."""

    retriable = False

    def __init__(self, text: str, *, code: int | None = None) -> None:
        super().__init__(text)
        self.code = code


class ClientStateError(RocketMQError):
    """Not possible now: not started, shut down already, started in vain, or another process."""


class DuplicateGroupError(ClientStateError):
    """The group has a producer or consumer in this session already."""


class InvalidMessageError(RocketMQError):
    """A message, a topic or a group that no broker would take; nothing was sent."""

    def __init__(self, text: str, *, code: int | None = ResponseCode.MESSAGE_ILLEGAL) -> None:
        super().__init__(text, code=code)


class NoNameServerError(RocketMQError):
    """No name server is known, or none of those that are known answers."""

    retriable = True

    def __init__(self, text: str) -> None:
        super().__init__(text, code=NO_NAME_SERVER)


class NoRouteCause(StrEnum):
    """Why there is no queue for a topic."""

    TOPIC_UNKNOWN = "the name servers do not know the topic"
    NO_QUEUE = "the topic has no queue that may be used"
    NO_MASTER = "no broker of the topic has a living master"


class NoRouteError(RocketMQError):
    """The topic has no place to go to; `cause` says why."""

    retriable = True

    def __init__(self, topic: str, cause: NoRouteCause, remedy: str = "") -> None:
        text = f"no route to topic {topic!r}: {cause.value}"
        super().__init__(f"{text}; {remedy}" if remedy else text, code=NOT_FOUND_TOPIC)
        self.topic = topic
        self.cause = cause


class RouteLimitError(RocketMQError):
    """A name server has answered with a route that is too large to be used; the old one stays."""

    def __init__(self, topic: str, reason: str) -> None:
        super().__init__(
            f"the route of topic {topic!r} was refused: {reason}; if the cluster is really so "
            f"large, raise route_queues_max"
        )
        self.topic = topic


class UnknownBrokerError(RocketMQError):
    """A broker name that no route of ours has an address for."""

    retriable = True

    def __init__(self, text: str) -> None:
        super().__init__(text, code=BROKER_NOT_EXIST)


class BrokerUnreachableError(RocketMQError):
    """No connection could be made, or it went away before the answer came."""

    retriable = True

    def __init__(self, text: str, *, is_connected: bool = False) -> None:
        super().__init__(text, code=CONNECT_BROKER_FAILED)
        # A request on a connection that broke may have been carried out; one that never had a
        # connection was not.
        self.is_connected = is_connected


class ClientTimeoutError(RocketMQError):
    """No answer came in time; whether the request was carried out is not known."""

    retriable = True

    def __init__(self, text: str, *, code: int = ACCESS_BROKER_TIMEOUT) -> None:
        super().__init__(text, code=code)


class RequestTimeoutError(ClientTimeoutError):
    """A request-reply call whose reply did not come in time; the request itself was sent."""

    def __init__(self, text: str) -> None:
        super().__init__(text, code=REQUEST_TIMEOUT)


class BadAnswerError(RocketMQError):
    """A broker or name server has answered with something that cannot be understood."""

    def __init__(self, peer: str, text: str) -> None:
        super().__init__(
            f"the answer of {peer} makes no sense: {text[:REMARK_LENGTH_MAX]}; is it a RocketMQ of "
            f"4.9 to 5.5, and is nothing between that changes what it sends?"
        )
        self.peer = peer


class InvalidStoredMessageError(RocketMQError):
    """A broker stores a message that cannot be decoded; asking again does not help."""

    def __init__(self, place: str, reason: str) -> None:
        super().__init__(f"{place} cannot be decoded: {reason}")
        self.reason = reason


class TooMuchInFlightError(RocketMQError):
    """More waits for an answer than may; nothing was sent."""

    retriable = True


class BrokerRefusal(RocketMQError):  # noqa: N818 - reads as what it is
    """A broker or name server has answered with an error; the code is its response code."""

    def __init__(self, code: int, remark: str, broker: str) -> None:
        if len(remark) > REMARK_LENGTH_MAX:
            remark = f"{remark[:REMARK_LENGTH_MAX]}… ({len(remark)} characters)"
        super().__init__(
            f"{broker} refuses: {remark or 'no reason given'} (code {code})", code=code
        )
        self.remark = remark
        self.broker = broker
        self.response_code = code
