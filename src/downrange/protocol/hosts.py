"""Addresses of brokers and clients, as bytes in records and ids and as text.

    ip 4 or 16, port 4        8 or 20 bytes
    "10.1.2.3:10911"  "[2001:db8::1]:10911"

An IPv4 address in IPv6 clothes (::ffff:10.1.2.3) is an IPv4 address, as it is for Java.
"""

from functools import lru_cache
from ipaddress import IPv6Address, ip_address

from downrange.protocol.errors import LocalProtocolError, RemoteProtocolError

HOST_BYTES_V4 = 8
HOST_BYTES_V6 = 20
PORT_MAX = 65_535
_IP_BYTES_V4 = 4
# Peers of one process: enough for every client of a busy broker, small next to its connections.
_CACHED_HOSTS_MAX = 16_384


@lru_cache(maxsize=_CACHED_HOSTS_MAX)
def encode_host(ip: str, port: int) -> bytes:
    """Host bytes: 8 for IPv4, 20 for IPv6."""
    if not 0 <= port <= PORT_MAX:
        raise LocalProtocolError(f"port {port} is not between 0 and {PORT_MAX}")
    return encode_ip(ip) + port.to_bytes(4, "big")


@lru_cache(maxsize=_CACHED_HOSTS_MAX)
def decode_host(host: bytes) -> tuple[str, int]:
    """Address text and port of 8 or 20 host bytes."""
    if len(host) not in {HOST_BYTES_V4, HOST_BYTES_V6}:
        raise RemoteProtocolError(f"a host has 8 or 20 bytes, not {len(host)}")
    port = int.from_bytes(host[-4:], "big")
    if port > PORT_MAX:
        raise RemoteProtocolError(f"host {host.hex()} has port {port}, over {PORT_MAX}")
    return decode_ip(host[:-4]), port


def encode_ip(ip: str) -> bytes:
    """The 4 or 16 bytes of an address; a zone (%eth0) is left out, as in Java."""
    try:
        address = ip_address(ip)
    except ValueError:
        raise LocalProtocolError(f"{ip!r} is no IP address; host names are not stored") from None
    if isinstance(address, IPv6Address) and address.ipv4_mapped is not None:
        return address.ipv4_mapped.packed
    return address.packed


def decode_ip(ip: bytes) -> str:
    """Text of 4 or 16 address bytes; IPv6 in its short form."""
    if len(ip) == _IP_BYTES_V4:
        return f"{ip[0]}.{ip[1]}.{ip[2]}.{ip[3]}"
    address = IPv6Address(ip)
    return str(address.ipv4_mapped or address)


def format_address(ip: str, port: int) -> str:
    """ "ip:port", with brackets around IPv6."""
    return f"[{ip}]:{port}" if ":" in ip else f"{ip}:{port}"


def parse_address(text: str) -> tuple[str, int]:
    """Host and port of "host:port"; brackets around IPv6 may be missing, as Java writes them.

    The host may be a name: an address in a route or a setting is not always a number.
    """
    host, colon, port = text.rpartition(":")
    if host.startswith("[") and host.endswith("]"):
        host = host[1:-1]
    # isdecimal alone would take the digits of other scripts.
    if not colon or not host or not (port.isascii() and port.isdecimal()):
        raise RemoteProtocolError(f"{text!r} is not host:port")
    if int(port) > PORT_MAX:
        raise RemoteProtocolError(f"{text!r} has a port over {PORT_MAX}")
    return host, int(port)
