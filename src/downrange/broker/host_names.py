"""Addresses in settings: what a broker tells others about itself, and whom it registers with."""

import re
import socket
from ipaddress import ip_address
from typing import Final

from downrange.protocol.errors import ProtocolError
from downrange.protocol.hosts import parse_address
from downrange.runtime.settings import SettingsError

_HOST_NAME: Final = re.compile(r"[A-Za-z0-9_]([A-Za-z0-9_.-]{0,253}[A-Za-z0-9_.])?")
_ALL_DIGITS: Final = re.compile(r"[0-9.]+")


def check_host(key: str, text: str) -> None:
    """`SettingsError` unless this is an IP address or a host name."""
    try:
        address = ip_address(text)
    except ValueError:
        if _HOST_NAME.fullmatch(text) and not _ALL_DIGITS.fullmatch(text):
            return
        raise SettingsError(
            f"{key} is {text!r}, but must be an IP address or a host name, without a port"
        ) from None
    if address.is_unspecified:
        raise SettingsError(
            f"{key} is {text!r}, which clients cannot connect to: it means every address of the"
            " machine; give one that they can reach (bindAddress says where to listen)"
        )


def check_name_servers(key: str, addresses: list[str]) -> None:
    """`SettingsError` unless all are host:port."""
    for address in addresses:
        try:
            parse_address(address)
        except ProtocolError as error:
            raise SettingsError(
                f"{key}: {error}; write for example 127.0.0.1:9876;192.168.0.1:9876"
            ) from None


def ip_of(host: str) -> str:
    """The IP address that records carry for a host; `SettingsError` if the name is not known."""
    try:
        return str(ip_address(host))
    except ValueError:
        pass
    try:
        found = socket.getaddrinfo(host, None, type=socket.SOCK_STREAM)
    except OSError as error:
        raise SettingsError(
            f"brokerIP1 is {host!r}, which cannot be resolved ({error}); give an IP address or a"
            " name that this machine knows"
        ) from error
    return str(found[0][4][0])
