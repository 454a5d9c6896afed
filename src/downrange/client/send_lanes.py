"""The ways of a producer to its queues: found once, kept while routes and connections stay."""

import asyncio
from typing import Final, NamedTuple

from downrange.client.peers import Peers
from downrange.client.routes import Routes
from downrange.client.send_channel import SendChannel
from downrange.client.send_frames import QueueParts, SendFrames
from downrange.model.topics import MessageQueue
from downrange.protocol.request_codes import RequestCode

LANES_MAX: Final = 10_000
PLAIN: Final = int(RequestCode.SEND_MESSAGE_V2)


class Lane(NamedTuple):
    """The way to one queue. `parts` are for plain sends."""

    routes_version: int
    channel: SendChannel
    broker: str
    address: str
    parts: QueueParts


class SendLanes:
    """Channels by address and lanes by queue; belongs to one sender."""

    def __init__(
        self, routes: Routes, peers: Peers, frames: SendFrames, loop: asyncio.AbstractEventLoop
    ) -> None:
        self._routes = routes
        self._peers = peers
        self._frames = frames
        self._loop = loop
        self._channels: dict[str, SendChannel] = {}
        self._lanes: dict[MessageQueue, Lane] = {}

    def to(self, queue: MessageQueue) -> Lane | None:
        """The way to a queue whose broker is connected; None if that has to be seen to first."""
        lane = self._lanes.get(queue)
        if (
            lane is not None
            and lane.routes_version == self._routes.version
            and not lane.channel.connection.is_closed
        ):
            return lane
        return self._find(queue)

    def channel(self, address: str) -> SendChannel | None:
        """The channel to a broker that is connected."""
        channel = self._channels.get(address)
        return None if channel is None or channel.connection.is_closed else channel

    async def open(self, address: str, timeout_s: float) -> SendChannel:
        """The channel to a broker, connected now if need be."""
        channel = self.channel(address)
        if channel is not None:
            return channel
        connection = await self._peers.connect(address, timeout_s)
        channel = self._channels.get(address)
        if channel is None or channel.connection is not connection:
            channel = self._channels[address] = SendChannel(connection, self._loop)
        return channel

    def leave(self, address: str, channel: SendChannel) -> None:
        """The broker takes no more on this channel; what waits on it may still be answered."""
        if self._channels.get(address) is channel:
            del self._channels[address]
            self._lanes.clear()
            self._peers.retire(address)

    def _find(self, queue: MessageQueue) -> Lane | None:
        broker = self._routes.broker_of(queue)
        address = self._routes.master_address(broker)
        channel = None if address is None else self.channel(address)
        if address is None or channel is None:
            return None
        if len(self._lanes) >= LANES_MAX:
            self._lanes.clear()
        parts = self._frames.parts(queue, broker, PLAIN)
        lane = self._lanes[queue] = Lane(self._routes.version, channel, broker, address, parts)
        return lane
