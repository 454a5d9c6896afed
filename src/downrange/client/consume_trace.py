"""Traces what a consumer's listener gets, and what becomes of it."""

from typing import Final

from downrange.client.hooks import ConsumeContext
from downrange.client.listener_calls import RETURN_TYPE_PROPERTY
from downrange.client.listeners import ReturnType
from downrange.client.message import ReceivedMessage
from downrange.client.namespace import without_namespace
from downrange.client.trace import DEFAULT_REGION, Tracer, sub_after_line, sub_before_line
from downrange.protocol import property_names as names
from downrange.protocol.unique_id import UniqueIdGenerator
from downrange.runtime.clock import monotonic_ms

# Java writes the number of the entry.
_CODES: Final = {kind.value: number for number, kind in enumerate(ReturnType)}
_BEGAN: Final = "trace began ms"
_REQUEST: Final = "trace request id"


class TraceConsumeHook:
    """Writes a line before and one after each message that a listener gets."""

    def __init__(self, tracer: Tracer, unique_ids: UniqueIdGenerator) -> None:
        self._tracer = tracer
        self._next_id = unique_ids.next_id

    def before_consume(self, context: ConsumeContext) -> None:
        """The listener is about to be called."""
        clock = self._tracer.clock
        request_id, now_ms = self._next_id(), clock.wall_ms()
        context.shared[_REQUEST], context.shared[_BEGAN] = request_id, monotonic_ms(clock)
        for message in _traced(context):
            properties = message.properties
            self._tracer.append(
                sub_before_line(
                    time_ms=now_ms,
                    region=properties.get(names.MESSAGE_REGION) or DEFAULT_REGION,
                    group=without_namespace(context.group, self._tracer.namespace),
                    topic=without_namespace(message.topic, self._tracer.namespace),
                    request_id=request_id,
                    message_id=message.message_id,
                    retry_times=message.reconsume_times,
                    keys=properties.get(names.KEYS),
                )
            )

    def after_consume(self, context: ConsumeContext) -> None:
        """The listener has returned or raised."""
        began_ms, request_id = context.shared.get(_BEGAN), context.shared.get(_REQUEST)
        messages = _traced(context)
        if not isinstance(began_ms, int) or not isinstance(request_id, str) or not messages:
            return
        now_ms = self._tracer.clock.wall_ms()
        cost_ms = (monotonic_ms(self._tracer.clock) - began_ms) // len(messages)
        kind = context.properties.get(RETURN_TYPE_PROPERTY, ReturnType.SUCCESS.value)
        for message in messages:
            self._tracer.append(
                sub_after_line(
                    time_ms=now_ms,
                    group=without_namespace(context.group, self._tracer.namespace),
                    topic=without_namespace(message.topic, self._tracer.namespace),
                    request_id=request_id,
                    message_id=message.message_id,
                    cost_ms=cost_ms,
                    is_success=context.is_success,
                    keys=message.properties.get(names.KEYS),
                    context_code=_CODES[kind],
                )
            )


def _traced(context: ConsumeContext) -> list[ReceivedMessage]:
    """The messages whose broker wants traces."""
    return [
        message
        for message in context.messages
        if message.properties.get(names.TRACE_SWITCH) != "false"
    ]
