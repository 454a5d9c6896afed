"""What a handler gives back, as bytes to write."""

import logging
from typing import TypeAlias

from downrange.protocol.command import Command, response
from downrange.protocol.command_codec import encode_command
from downrange.protocol.errors import ProtocolError
from downrange.protocol.response_codes import ResponseCode
from downrange.remoting.errors import Refused

_log = logging.getLogger(__name__)

# A command, bytes that are a whole frame, the parts of one, or nothing (one-way, or answered later
# with `Connection.reply`).
Answer: TypeAlias = Command | bytes | list[bytes | memoryview] | None


def add_answer(answer: Answer, out: list[bytes | memoryview]) -> None:
    """Append the bytes of an answer."""
    if isinstance(answer, bytes):
        out.append(answer)
    elif isinstance(answer, list):
        out.extend(answer)
    elif answer is not None:
        out.append(encode_command(answer))


def answer_to_error(error: Exception, command: Command) -> Command:
    """What a failed handler tells the peer."""
    if isinstance(error, Refused):
        return response(command, error.code, remark=error.remark)
    if isinstance(error, ProtocolError):
        return response(command, ResponseCode.SYSTEM_ERROR, remark=str(error))
    _log.error("request code %d failed", command.code, exc_info=error)
    return response(command, ResponseCode.SYSTEM_ERROR, remark=f"{type(error).__name__}: {error}")
