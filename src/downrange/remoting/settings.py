"""What a server takes from its connections: limits of requests, memory and addresses."""

from dataclasses import dataclass

from downrange.runtime.loop_watch import LIMIT_MS
from downrange.runtime.settings import setting

KIB = 1024
MIB = 1024 * KIB


@dataclass(frozen=True, slots=True, kw_only=True)
class ConnectionSettings:
    """The same for name server and broker; RocketMQ has no such settings."""

    header_bytes_max: int = setting(
        "requestHeaderBytesMax",
        256 * KIB,
        least=64 * KIB,
        most=16 * MIB,
        about="largest header of a request; a send with the longest valid properties fits",
    )
    body_bytes_max: int = setting(
        "requestBodyBytesMax",
        MIB,
        least=64 * KIB,
        most=16 * MIB,
        about="largest body of a request that carries no message, such as a heartbeat",
    )
    registration_bytes_max: int = setting(
        "registrationBytesMax",
        4 * MIB,
        least=64 * KIB,
        most=16 * MIB,
        about="largest body of a request by which a broker registers or changes many topics",
    )
    held_bytes_max: int = setting(
        "connectionBytesMax",
        512 * MIB,
        least=64 * MIB,
        about="bytes held for all connections: requests that are not complete, unread responses",
    )
    receive_s_max: int = setting(
        "requestReceiveSeconds",
        30,
        least=1,
        about="a request that began to arrive must be complete after it, plus 1 s per 16 KiB",
    )
    connections_per_address_max: int = setting(
        "connectionsPerAddressMax", 0, least=0, about="connections of one IP address; 0: no limit"
    )
    bytes_per_second_max: int = setting(
        "bytesPerSecondPerAddressMax",
        0,
        least=0,
        about="bytes per second read from one IP address; 0: no limit",
    )
    loop_limit_ms: int = setting(
        "loopWatchMillis",
        LIMIT_MS,
        least=1,
        about="a callback that holds the event loop for longer is counted and logged",
    )
