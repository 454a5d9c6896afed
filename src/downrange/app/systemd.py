"""Tells systemd how a service of `Type=notify` is: one datagram, nothing without systemd."""

import logging
import os
import socket
from collections.abc import Mapping
from typing import Final

_log = logging.getLogger(__name__)

READY: Final = "READY=1"
STOPPING: Final = "STOPPING=1"
_VARIABLE: Final = "NOTIFY_SOCKET"


def notify(state: str, environ: Mapping[str, str] = os.environ) -> bool:
    """Say it to whoever started this process; False if nobody listens."""
    path = environ.get(_VARIABLE, "")
    if not path.startswith(("/", "@")):
        return False
    # A name that begins with @ is in the abstract name space, where the first byte is zero.
    address = "\0" + path[1:] if path.startswith("@") else path
    try:
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sender:
            sender.settimeout(1.0)
            sender.sendto(state.encode(), address)
    except OSError as error:
        _log.warning("systemd was not told %s: %s", state, error)
        return False
    return True
