"""Calls the hooks of a consumer; one that fails is logged and changes nothing."""

import logging
from collections.abc import Iterable
from typing import Literal

from downrange.client.hooks import ConsumeContext, ConsumeHook
from downrange.client.listeners import ConsumeStatus
from downrange.client.message import ReceivedMessage
from downrange.model.topics import MessageQueue

_log = logging.getLogger(__name__)


def run_consume_hooks(
    hooks: Iterable[ConsumeHook],
    moment: Literal["before_consume", "after_consume"],
    context: ConsumeContext,
) -> None:
    """All hooks, one after the other."""
    for hook in hooks:
        try:
            getattr(hook, moment)(context)
        except Exception:  # noqa: BLE001 - a hook may raise anything
            _log.exception("%s of %r failed; messages are consumed nevertheless", moment, hook)


def show_given(
    hooks: Iterable[ConsumeHook],
    group: str,
    namespace: str,
    queue: MessageQueue,
    messages: list[ReceivedMessage],
) -> None:
    """Messages that a program has fetched by itself count as consumed once it has them."""
    context = ConsumeContext(group=group, messages=messages, queue=queue, namespace=namespace)
    run_consume_hooks(hooks, "before_consume", context)
    context.is_success = True
    context.status = ConsumeStatus.CONSUME_SUCCESS.value
    run_consume_hooks(hooks, "after_consume", context)
