"""Reads the JSON that RocketMQ peers really write.

The JSON library of RocketMQ (fastjson) is not strict, and neither are its peers:

    {0:"10.0.0.1:10911"}                                   keys that are numbers are not quoted
    {{"brokerName":"a","queueId":0,"topic":"T"}:{...}}     a map keyed by objects
    {name:'x',}                                            names, single quotes, a last comma

Strict JSON, by far the most, is read by msgspec; only what that refuses goes through the slow
reader here. Both give the same values: a key is text, also when it was a number, or an `ObjectKey`.
Work grows with the length of the text alone, and nesting is bounded. The slow reader takes about a
microsecond per character, so a header is read by it only up to `LOOSE_BYTES_MAX`.
"""

import re
from collections.abc import Iterator, Mapping
from typing import Final, TypeAlias

import msgspec

from downrange.protocol.errors import RemoteProtocolError

DEPTH_MAX: Final = 100
"""Far above the ten levels RocketMQ's deepest body has, far below Python's own stack."""

DIGITS_MAX: Final = 400
"""Longer than any number of the protocol; reading a number is quadratic in its digits."""

LOOSE_BYTES_MAX: Final = 32 * 1024
"""What a peer may have read by the slow reader; no known client writes such requests at all."""

JsonScalar: TypeAlias = "bool | int | float | str | None"
JsonKey: TypeAlias = "str | ObjectKey"
JsonValue: TypeAlias = "JsonScalar | list[JsonValue] | dict[JsonKey, JsonValue]"

_BLANK: Final = frozenset(" \t\r\n\f\b\ufeff")
_BLANKS: Final = re.compile(r"[ \t\r\n\f\b\ufeff]*")
_NUMBER: Final = re.compile(r"-?[0-9]+(\.[0-9]+)?([eE][+-]?[0-9]+)?")
_NAME: Final = re.compile(r"[A-Za-z_$][A-Za-z0-9_$]*")
_PLAIN_TEXT: Final = {'"': re.compile(r'[^"\\]*'), "'": re.compile(r"[^'\\]*")}
_HEX: Final = {"u": re.compile(r"[0-9a-fA-F]{4}"), "x": re.compile(r"[0-9a-fA-F]{2}")}
_ESCAPES: Final = {
    **{character: character for character in "\"'\\/"},
    **{digit: chr(int(digit)) for digit in "01234567"},
    **dict(zip("bfnrtv", "\b\f\n\r\t\v", strict=True)),
}
_LITERALS: Final[dict[str, bool | None]] = {"true": True, "false": False, "null": None}
_SURROGATE: Final = re.compile("[\ud800-\udfff]")


class ObjectKey(Mapping[str, JsonScalar]):
    """An object that stands as the key of a map; its members are plain values."""

    __slots__ = ("_hash", "_members")

    def __init__(self, members: Mapping[str, JsonScalar]) -> None:
        self._members = dict(members)
        # Over text, whose hash is seeded: a peer cannot choose keys that all collide.
        self._hash = hash(str(sorted(self._members.items(), key=lambda member: member[0])))

    def __getitem__(self, name: str) -> JsonScalar:
        return self._members[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._members)

    def __len__(self) -> int:
        return len(self._members)

    def __hash__(self) -> int:
        return self._hash

    def __eq__(self, other: object) -> bool:
        return isinstance(other, ObjectKey) and self._members == other._members

    def __repr__(self) -> str:
        return f"ObjectKey({self._members!r})"


def read_json(data: bytes, *, loose_bytes_max: int | None = None) -> JsonValue:
    """Read one JSON value, strict or as fastjson writes it; more than the limit strictly only."""
    # Java replaces broken UTF-8 in the same way instead of refusing it.
    text = data.decode("utf-8", "replace")
    try:
        value: JsonValue = _STRICT.decode(text)
    except msgspec.MsgspecError as error:
        if loose_bytes_max is not None and len(data) > loose_bytes_max:
            raise RemoteProtocolError(
                f"JSON of {len(data)} bytes is not strict ({error}); only {loose_bytes_max} bytes "
                "are read leniently"
            ) from None
        return _LooseReader(text).document()
    except RecursionError:
        raise RemoteProtocolError("JSON is nested too deeply") from None
    return value


_STRICT: Final = msgspec.json.Decoder()


class _LooseReader:
    """A cursor over the text; a method starts at its own first character and ends behind it."""

    __slots__ = ("_position", "_text")

    def __init__(self, text: str) -> None:
        self._text = text
        self._position = 0

    def document(self) -> JsonValue:
        """Read the whole text as one value."""
        value = self._value(0)
        if self._peek():
            raise self._error("text after the end of the value")
        return value

    def _value(self, depth: int) -> JsonValue:
        first = self._peek()
        if first == "{":
            return self._object(depth + 1)
        if first == "[":
            return self._array(depth + 1)
        if first in _PLAIN_TEXT:
            return self._string(first)
        if first == "-" or first.isdecimal():
            return self._number()
        name = self._name()
        if name not in _LITERALS:
            raise self._error(f"unknown word {name[:40]!r}")
        return _LITERALS[name]

    def _object(self, depth: int) -> dict[JsonKey, JsonValue]:
        self._enter(depth)
        members: dict[JsonKey, JsonValue] = {}
        while (first := self._peek()) != "}":
            key = self._key(first, depth)
            self._expect(":")
            members[key] = self._value(depth)
            after = self._peek()
            if after == ",":
                self._position += 1
            elif after != "}":
                raise self._error("expected ',' or '}'")
        self._position += 1
        return members

    def _array(self, depth: int) -> list[JsonValue]:
        self._enter(depth)
        items: list[JsonValue] = []
        while self._peek() != "]":
            items.append(self._value(depth))
            after = self._peek()
            if after == ",":
                self._position += 1
            elif after != "]":
                raise self._error("expected ',' or ']'")
        self._position += 1
        return items

    def _enter(self, depth: int) -> None:
        if depth > DEPTH_MAX:
            raise self._error("nested too deeply")
        self._position += 1

    def _key(self, first: str, depth: int) -> JsonKey:
        if first in _PLAIN_TEXT:
            return self._string(first)
        if first == "{":
            return self._object_key(self._object(depth + 1))
        if first == "-" or first.isdecimal():
            return self._digits().group()
        return self._name()

    def _object_key(self, members: dict[JsonKey, JsonValue]) -> ObjectKey:
        plain: dict[str, JsonScalar] = {}
        for name, value in members.items():
            if isinstance(name, ObjectKey) or isinstance(value, list | dict):
                raise self._error("an object used as a key has members that are not plain")
            plain[name] = value
        return ObjectKey(plain)

    def _string(self, quote: str) -> str:
        pattern = _PLAIN_TEXT[quote]
        parts: list[str] = []
        while True:
            plain = pattern.match(self._text, self._position + 1)
            assert plain is not None  # the pattern also matches nothing at all
            end = plain.end()
            if end == len(self._text):
                raise self._error("text that is not closed")
            if self._text[end] == quote:
                self._position = end + 1
                if not parts:
                    return plain.group()
                parts.append(plain.group())
                return _paired("".join(parts))
            self._position = end + 1
            parts.append(plain.group())
            parts.append(self._escape())

    def _escape(self) -> str:
        """Read what follows a backslash; ends on its last character, not behind it."""
        letter = self._text[self._position : self._position + 1]
        if letter in _ESCAPES:
            return _ESCAPES[letter]
        digits = _HEX[letter].match(self._text, self._position + 1) if letter in _HEX else None
        if digits is None:
            raise self._error(f"bad escape \\{letter}")
        self._position = digits.end() - 1
        return chr(int(digits.group(), 16))

    def _number(self) -> int | float:
        digits = self._digits()
        if digits.group(1) is None and digits.group(2) is None:
            return int(digits.group())
        return float(digits.group())

    def _digits(self) -> re.Match[str]:
        digits = _NUMBER.match(self._text, self._position)
        if digits is None:
            raise self._error("bad number")
        if digits.end() - self._position > DIGITS_MAX:
            raise self._error("number is too long")
        self._position = digits.end()
        return digits

    def _name(self) -> str:
        name = _NAME.match(self._text, self._position)
        if name is None:
            raise self._error("expected a value" if self._peek() else "text ends too early")
        self._position = name.end()
        return name.group()

    def _expect(self, character: str) -> None:
        if self._peek() != character:
            raise self._error(f"expected {character!r}")
        self._position += 1

    def _peek(self) -> str:
        """Skip blanks and look at the next character; empty at the end of the text."""
        character = self._text[self._position : self._position + 1]
        if character not in _BLANK:
            return character
        blanks = _BLANKS.match(self._text, self._position)
        assert blanks is not None  # the pattern also matches nothing at all
        self._position = blanks.end()
        return self._text[self._position : self._position + 1]

    def _error(self, what: str) -> RemoteProtocolError:
        return RemoteProtocolError(f"JSON is malformed: {what} (character {self._position})")


def _paired(text: str) -> str:
    """Join escaped surrogate pairs; a lone half, which UTF-8 cannot carry, becomes U+FFFD."""
    if _SURROGATE.search(text) is None:
        return text
    return text.encode("utf-16-be", "surrogatepass").decode("utf-16-be", "replace")
