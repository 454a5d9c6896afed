"""How a client is called: address, instance and unit, as brokers show it and rebalancing sorts it.

10.1.2.3@4711#83522        10.1.2.3@DEFAULT@unit
"""

import ipaddress
import os
import socket
from typing import Final

DEFAULT_INSTANCE: Final = "DEFAULT"
# Nothing is sent there: asking for the way to an address tells which of ours would be used.
_FAR_AWAY: Final = ("192.0.2.1", 9)


def build_client_id(ip: str, instance_name: str, unit_name: str = "") -> str:
    """The id of a client."""
    client_id = f"{ip}@{instance_name}"
    return f"{client_id}@{unit_name}" if unit_name.strip() else client_id


def process_instance_name(process_id: int, nonce: int) -> str:
    """What stands for the instance name DEFAULT, so that two processes never share an id."""
    return f"{process_id}#{nonce}"


def local_ip() -> str:
    """The address that this machine uses towards others; loopback when it has no other."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect(_FAR_AWAY)
            ip = str(probe.getsockname()[0])
        except OSError:
            return "127.0.0.1"
    return ip if not ipaddress.ip_address(ip).is_unspecified else "127.0.0.1"


class _Process:
    """The id of this process, known without asking the system for each message."""

    id = os.getpid()

    @classmethod
    def after_fork(cls) -> None:
        cls.id = os.getpid()


os.register_at_fork(after_in_child=_Process.after_fork)


def process_id() -> int:
    """The id of this process, also after a fork."""
    return _Process.id
