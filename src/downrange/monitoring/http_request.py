"""Reads an HTTP/1 request head out of bytes, in whatever pieces they arrive. No I/O.

Lines end with CRLF or LF. Bodies are not read: a request for a page has none, and the server closes
the connection after its response.
"""

import re
from dataclasses import dataclass
from http import HTTPStatus
from typing import Final

REQUEST_LINE_BYTES_MAX: Final = 4 * 1024  # longer than any path and query that a page understands
HEAD_BYTES_MAX: Final = 8 * 1024  # what common HTTP servers allow
METHODS: Final = ("GET", "HEAD")

_HEAD_END: Final = re.compile(rb"\r?\n\r?\n")
_VERSION: Final = re.compile(r"HTTP/\d\.\d")
_TARGET: Final = re.compile(r"(?:https?://[^/?#]*)?(?P<path>/[^?#]*)?(?:\?[^#]*)?")
_REQUEST_WORDS: Final = 3


class BadRequestError(Exception):
    """A request that gets an error response."""

    def __init__(self, status: HTTPStatus, text: str) -> None:
        super().__init__(text)
        self.status = status


@dataclass(frozen=True, slots=True)
class Request:
    """What is asked for."""

    method: str
    path: str
    accepts_json: bool = False


class RequestReader:
    """Collects the head of one request; later bytes belong to nobody and are dropped."""

    def __init__(self) -> None:
        self._head = bytearray()

    @property
    def is_empty(self) -> bool:
        """Whether the peer has sent nothing yet."""
        return not self._head

    def feed(self, data: bytes) -> Request | None:
        """Take bytes; the request once its head is complete, else None.

        Raises `BadRequestError` as soon as no further byte could make the request valid.
        """
        searched = max(len(self._head) - 3, 0)  # an end may have begun in earlier pieces
        self._head += data[: HEAD_BYTES_MAX + 4 - len(self._head)]
        if not self._head.lstrip(b"\r\n"):
            self._head.clear()  # a blank line before a request is allowed, and carries nothing
            return None
        end = _HEAD_END.search(self._head, searched)
        line_end = self._head.find(b"\n")
        if (line_end if line_end >= 0 else len(self._head)) > REQUEST_LINE_BYTES_MAX:
            raise BadRequestError(
                HTTPStatus.REQUEST_URI_TOO_LONG,
                f"request line is longer than {REQUEST_LINE_BYTES_MAX} bytes",
            )
        if (end.start() if end is not None else len(self._head)) > HEAD_BYTES_MAX:
            raise BadRequestError(
                HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE,
                f"request head is longer than {HEAD_BYTES_MAX} bytes",
            )
        return None if end is None else _parse(bytes(self._head[: end.start()]).decode("latin-1"))


def _parse(head: str) -> Request:
    line, *fields = re.split(r"\r?\n", head.lstrip("\r\n"))
    words = line.split(" ")
    if len(words) != _REQUEST_WORDS or not _VERSION.fullmatch(words[2]):
        raise BadRequestError(HTTPStatus.BAD_REQUEST, "not an HTTP/1 request")
    method, target, version = words
    if not version.startswith("HTTP/1."):
        raise BadRequestError(
            HTTPStatus.HTTP_VERSION_NOT_SUPPORTED, f"{version} is not supported, use HTTP/1.1"
        )
    if method not in METHODS:
        raise BadRequestError(
            HTTPStatus.METHOD_NOT_ALLOWED, f"only {' and '.join(METHODS)} are supported"
        )
    matched = _TARGET.fullmatch(target)
    path = "/" if matched is None else matched["path"] or "/"
    return Request(method, path, accepts_json=_accepts_json(fields))


def _accepts_json(fields: list[str]) -> bool:
    for field in fields:
        name, _, value = field.partition(":")
        if name.lower() == "accept" and "application/json" in value.lower():
            return True
    return False
