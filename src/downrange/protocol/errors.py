"""What can be wrong with bytes: the peer's or the file's fault, or ours."""


class ProtocolError(Exception):
    """Bytes and values do not agree; the text says where and why."""


class RemoteProtocolError(ProtocolError):
    """A peer or a file holds bytes that cannot be what they claim to be."""


class LocalProtocolError(ProtocolError):
    """A value given to an encoder cannot be written in this format."""
