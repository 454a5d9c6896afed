"""Which address a cluster listens on, and which one it tells its clients."""

import ipaddress
from collections.abc import Callable
from pathlib import Path
from typing import Final

from downrange.broker.settings import own_address

LOOPBACK: Final = "127.0.0.1"
EVERYWHERE: Final = "0.0.0.0"  # noqa: S104 - chosen where nothing outside could come in otherwise
_MARKS_OF_A_CONTAINER: Final = ("/.dockerenv", "/run/.containerenv")
_KUBERNETES: Final = "/var/run/secrets/kubernetes.io"


def is_in_container(root: Path = Path("/")) -> bool:
    """Whether this process seems to run in a container."""
    marks = (*_MARKS_OF_A_CONTAINER, _KUBERNETES)
    return any((root / mark.lstrip("/")).exists() for mark in marks)


def is_loopback(host: str) -> bool:
    """Whether only this machine can reach the address."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def is_everywhere(host: str) -> bool:
    """Whether it stands for all addresses of the machine."""
    try:
        return ipaddress.ip_address(host).is_unspecified
    except ValueError:
        return not host


def advertised_address(host: str, given: str = "", own: Callable[[], str] = own_address) -> str:
    """What clients are told: what was given, else where the server listens, else this machine.

    A broker that tells its clients an address they cannot reach is the classical first mistake.
    """
    if given:
        return given
    if is_everywhere(host):
        return own()
    return LOOPBACK if host == "localhost" else host
