"""Who consumes which queue, when the broker decides: bodies of QUERY_ASSIGNMENT and its switch."""

from downrange.model.topics import MessageQueue
from downrange.protocol.bodies.json_body import Body
from downrange.protocol.integers import Int32


class AssignmentRequest(Body, frozen=True, kw_only=True):
    """Body of QUERY_ASSIGNMENT."""

    topic: str
    consumer_group: str
    client_id: str
    strategy_name: str | None = None
    message_model: str | None = None


class QueueAssignment(Body, frozen=True, kw_only=True):
    """One queue, to be consumed by PULL or POP."""

    message_queue: MessageQueue | None = None
    mode: str = "PULL"
    attachments: dict[str, str] | None = None


class AssignmentResponse(Body, frozen=True, kw_only=True):
    """Answer to QUERY_ASSIGNMENT."""

    message_queue_assignments: tuple[QueueAssignment, ...] = ()


class RequestModeChange(Body, frozen=True, kw_only=True):
    """Body of SET_MESSAGE_REQUEST_MODE."""

    topic: str
    consumer_group: str
    mode: str = "PULL"
    pop_share_queue_num: Int32 = 0
