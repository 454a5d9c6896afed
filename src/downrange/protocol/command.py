"""A request or a response: the code, the pairing number, the fields by name and the body.

A command travels in a frame whose header is written in one of two encodings, `json_header` or
`binary_header`; every peer reads both, frame by frame, and answers in its own.
"""

from enum import IntEnum, unique
from typing import Final

import msgspec

from downrange.protocol.languages import LanguageCode
from downrange.protocol.versions import CURRENT_VERSION

RESPONSE_FLAG: Final = 1
ONE_WAY_FLAG: Final = 2


@unique
class Serialization(IntEnum):
    """How the header of a frame is written; the number is the frame's encoding byte."""

    JSON = 0
    ROCKETMQ = 1


class Command(msgspec.Struct, frozen=True, kw_only=True):
    """One request or response; `opaque` pairs the two on a connection.

    `ext_fields` holds the typed header as text (see `downrange.protocol.headers`); None and empty
    differ only in what a JSON header shows. `body` is None when nothing follows the header.
    """

    code: int
    language: LanguageCode = LanguageCode.PYTHON
    version: int = CURRENT_VERSION
    opaque: int = 0
    flag: int = 0
    remark: str | None = None
    ext_fields: dict[str, str] | None = None
    body: bytes | None = None
    serialization: Serialization = Serialization.JSON

    @property
    def is_response(self) -> bool:
        """Whether this answers a request of ours."""
        return self.flag & RESPONSE_FLAG != 0

    @property
    def is_one_way(self) -> bool:
        """Whether the sender wants no answer; then none may be written."""
        return self.flag & ONE_WAY_FLAG != 0


def request(
    code: int,
    *,
    opaque: int,
    ext_fields: dict[str, str] | None = None,
    body: bytes | None = None,
    one_way: bool = False,
    serialization: Serialization = Serialization.JSON,
) -> Command:
    """Build a request of ours; `opaque` must be unused among those still waiting for an answer."""
    return Command(
        code=code,
        opaque=opaque,
        flag=ONE_WAY_FLAG if one_way else 0,
        ext_fields=ext_fields,
        body=body,
        serialization=serialization,
    )


def response(
    to: Command,
    code: int,
    *,
    remark: str | None = None,
    ext_fields: dict[str, str] | None = None,
    body: bytes | None = None,
) -> Command:
    """Build our answer to a request, in the encoding the request came in."""
    return Command(
        code=code,
        opaque=to.opaque,
        flag=RESPONSE_FLAG,
        remark=remark,
        ext_fields=ext_fields,
        body=body,
        serialization=to.serialization,
    )
