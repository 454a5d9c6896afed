"""Calls the hooks of a producer around each try; one that fails is logged and changes nothing."""

import logging

from downrange.client.hooks import ForbiddenHook, SendContext, SendHook
from downrange.client.message import SendReceipt
from downrange.client.outgoing import Outgoing
from downrange.model.topics import MessageQueue
from downrange.protocol import property_names as names

_log = logging.getLogger(__name__)


class SendHooks:
    """The hooks of one producer; hooks may be added at any time."""

    def __init__(self, group: str, client_ip: str) -> None:
        self._group = group
        self._client_ip = client_ip
        self.sends: list[SendHook] = []
        self.forbids: list[ForbiddenHook] = []

    @property
    def is_empty(self) -> bool:
        """Whether nobody looks on."""
        return not self.sends and not self.forbids

    def before(self, outgoing: Outgoing, queue: MessageQueue, address: str) -> SendContext | None:
        """A try begins; a hook that forbids it raises."""
        if self.is_empty:
            return None
        context = SendContext(
            group=self._group,
            message=outgoing.message,
            queue=queue,
            broker_address=address,
            message_id=outgoing.message_id,
            message_type=_message_type(outgoing.message.properties),
            born_host=self._client_ip,
        )
        for forbidding in self.forbids:
            forbidding.check_forbidden(context)
        for hook in self.sends:
            try:
                hook.before_send(context)
            except Exception:  # noqa: BLE001 - a hook only looks on
                _log.exception("a send hook failed before the send")
        return context

    def after(
        self, context: SendContext | None, receipt: SendReceipt | None, error: Exception | None
    ) -> None:
        """The try has ended."""
        if context is None:
            return
        context.receipt, context.error = receipt, error
        for hook in self.sends:
            try:
                hook.after_send(context)
            except Exception:  # noqa: BLE001 - a hook only looks on
                _log.exception("a send hook failed after the send")


def _message_type(properties: dict[str, str]) -> str:
    if names.DELAY_LEVEL in properties or "__STARTDELIVERTIME" in properties:
        return "Delay_Msg"
    if properties.get(names.TRANSACTION_PREPARED) == "true":
        return "Trans_Msg_Half"
    return "Normal_Msg"
