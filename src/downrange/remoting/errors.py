"""What can go wrong between two peers, one class for each answer that a caller can give."""


class Refused(Exception):  # noqa: N818 - reads as what it is: raise Refused(code, remark)
    """A request that we will not do; the peer gets this code and text, the connection stays."""

    def __init__(self, code: int, remark: str) -> None:
        super().__init__(f"{remark} (code {code})")
        self.code = code
        self.remark = remark


class RemotingError(Exception):
    """A request that got no answer; the text says which peer and why."""

    retriable = True


class ConnectError(RemotingError):
    """No connection could be made."""


class ConnectionLostError(RemotingError):
    """The connection went away before the answer came."""


class SentAwayError(RemotingError):
    """The peer is shutting down and said so twice; nothing was done."""


class RequestTimeoutError(RemotingError):
    """No answer came in time; whether the request was carried out is not known."""


class TooManyRequestsError(RemotingError):
    """More requests wait for an answer than may; nothing was sent."""
