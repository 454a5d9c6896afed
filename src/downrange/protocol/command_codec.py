"""Commands from frames and back; the frame's encoding byte picks the form of the header."""

from downrange.protocol.binary_header import decode_binary_header, encode_binary_header
from downrange.protocol.command import Command, Serialization
from downrange.protocol.errors import RemoteProtocolError
from downrange.protocol.frame import Frame, encode_frame_start
from downrange.protocol.json_header import decode_json_header, encode_json_header


def decode_command(frame: Frame) -> Command:
    """Read the command of a frame, whichever encoding its sender chose."""
    if frame.encoding == Serialization.JSON:
        return decode_json_header(frame.header, frame.body)
    if frame.encoding == Serialization.ROCKETMQ:
        return decode_binary_header(frame.header, frame.body)
    raise RemoteProtocolError(f"unknown header encoding {frame.encoding}")


def encode_command(command: Command) -> bytes:
    """Write the whole frame of a command."""
    body = command.body
    if body is None:
        return encode_command_start(command, 0)
    return encode_command_start(command, len(body)) + body


def encode_command_start(command: Command, body_bytes: int) -> bytes:
    """Write a frame up to its body, which the caller sends after it, perhaps from a mapped file."""
    if command.serialization is Serialization.JSON:
        header = encode_json_header(command)
    else:
        header = encode_binary_header(command)
    return encode_frame_start(command.serialization, header, body_bytes)
