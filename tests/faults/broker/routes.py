"""What a name server says about a topic."""

import asyncio
import time

from faults.broker.peers import Peer, pause

from downrange.protocol.bodies.json_body import decode_body
from downrange.protocol.bodies.route import TopicRoute
from downrange.protocol.headers.topic import GetRouteRequest
from downrange.protocol.request_codes import RequestCode
from downrange.protocol.response_codes import ResponseCode
from downrange.remoting.errors import RemotingError


async def brokers_of(names_address: str, topic: str) -> list[str]:
    """The addresses that serve the topic, as a client is told."""
    peer = Peer(names_address)
    try:
        answer = await peer.call(RequestCode.GET_ROUTEINFO_BY_TOPIC, GetRouteRequest(topic=topic))
    finally:
        peer.close()
    if answer.code == ResponseCode.TOPIC_NOT_EXIST:
        return []
    assert answer.code == ResponseCode.SUCCESS, answer
    route = decode_body(TopicRoute, answer.body)
    return [address for data in route.broker_datas for address in data.broker_addrs.values()]


async def wait_for_route(
    names_address: str, topic: str, expected: list[str], seconds_max: float = 30.0
) -> float:
    """Return how many seconds it took until these brokers serve the topic."""
    start_s = time.monotonic()
    async with asyncio.timeout(seconds_max):
        while True:
            try:
                if await brokers_of(names_address, topic) == expected:
                    return time.monotonic() - start_s
            except RemotingError:
                pass  # the name server is not there yet
            await pause(0.05)
