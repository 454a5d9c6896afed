"""Sends messages to the retry topic of a group, when their own broker does not take them back."""

from dataclasses import replace
from typing import Final

from downrange.client.message import Message, SendReceipt
from downrange.client.outgoing import OutgoingMaker
from downrange.client.send_frames import SendFrames
from downrange.client.send_hooks import SendHooks
from downrange.client.sender import Sender
from downrange.client.session import Session
from downrange.client.settings import ProducerSettings

INNER_GROUP: Final = "CLIENT_INNER_PRODUCER"


class RetrySending:
    """The little producer inside a consumer; topics it gets have their namespace already."""

    def __init__(self, session: Session, settings: ProducerSettings | None = None) -> None:
        # A retry topic may have one queue only, and its route may not be known yet.
        settings = replace(settings or ProducerSettings(), default_topic_queue_nums=1)
        self._settings = settings
        frames = SendFrames(
            INNER_GROUP,
            settings.create_topic_key,
            settings.default_topic_queue_nums,
            unit_mode=False,
        )
        hooks = SendHooks(INNER_GROUP, session.settings.client_ip)
        self._sender = Sender(session, settings, frames, hooks)
        self._maker = OutgoingMaker(settings, "", session.unique_ids)

    async def send(self, message: Message) -> SendReceipt:
        """Send over whichever broker takes it."""
        settings = self._settings
        return await self._sender.send(
            self._maker.make(message), None, settings.send_timeout_s, tries=1 + settings.retries
        )
