"""Java property text: `key=value` lines with comments, continued lines and escapes.

    # a comment, as is a line that begins with !
    key=value            the separator is =, : or blanks
    long = first \\
           second        a backslash at the end continues the line, the next indentation is dropped
    text=caf\\u00e9 \\t    escapes in keys and values

Later lines win over earlier ones with the same key.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

_BLANKS = " \t\f"
_SEPARATORS = "=:"
_CONTROL_ESCAPES = {"t": "\t", "n": "\n", "r": "\r", "f": "\f"}
_CONTROL_NAMES = {control: name for name, control in _CONTROL_ESCAPES.items()}
_UNICODE_DIGITS = 4


class PropertyTextError(ValueError):
    """The text is not property text; the error says where."""


@dataclass(frozen=True, slots=True)
class Property:
    """One `key=value`, and where it was written."""

    key: str
    value: str
    source: str = "the request"
    line: int = 0

    @property
    def place(self) -> str:
        """Where it stands, for error texts."""
        return f"{self.source}, line {self.line}" if self.line else self.source


def read_properties(data: bytes, source: str = "the request") -> list[Property]:
    """All properties in their order; of those with the same key the last one counts."""
    properties = []
    for number, line in _logical_lines(_text(data)):
        key, value = _split(line)
        place = f"{source}, line {number}"
        properties.append(
            Property(_unescaped(key, place), _unescaped(value, place), source, number)
        )
    return properties


def write_properties(properties: Mapping[str, str]) -> bytes:
    """Text that `read_properties` and Java read back, sorted by key."""
    lines = [f"{_key_text(key)}={_value_text(properties[key])}\n" for key in sorted(properties)]
    return "".join(lines).encode()


def _text(data: bytes) -> str:
    # Java reads such files as Latin-1, people write them as UTF-8; text that is not valid UTF-8
    # can only have been meant as the former.
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError:
        return data.decode("latin-1")


def _logical_lines(text: str) -> Iterable[tuple[int, str]]:
    """Lines with their first line number, continued ones joined, without comments and blanks."""
    lines = text.replace("\r\n", "\n").replace("\r", "\n").split("\n")
    position = 0
    while position < len(lines):
        first, line = position, lines[position].lstrip(_BLANKS)
        position += 1
        if not line or line[0] in "#!":
            continue
        while _is_continued(line):
            more = lines[position].lstrip(_BLANKS) if position < len(lines) else ""
            line = line[:-1] + more
            position += 1
        yield first + 1, line


def _is_continued(line: str) -> bool:
    backslashes = len(line) - len(line.rstrip("\\"))
    return backslashes % 2 == 1


def _split(line: str) -> tuple[str, str]:
    end = 0
    while end < len(line) and line[end] not in _BLANKS + _SEPARATORS:
        end += 2 if line[end] == "\\" else 1
    key, rest = line[:end], line[end:].lstrip(_BLANKS)
    if rest[:1] and rest[0] in _SEPARATORS:
        rest = rest[1:].lstrip(_BLANKS)
    return key, rest


def _unescaped(text: str, place: str) -> str:
    if "\\" not in text:
        return text
    parts = []
    position = 0
    while position < len(text):
        character = text[position]
        position += 1
        if character != "\\" or position >= len(text):
            parts.append(character if character != "\\" else "")
            continue
        name = text[position]
        position += 1
        if name == "u":
            digits = text[position : position + _UNICODE_DIGITS]
            parts.append(_unicode(digits, place))
            position += _UNICODE_DIGITS
        else:
            parts.append(_CONTROL_ESCAPES.get(name, name))
    return "".join(parts)


def _unicode(digits: str, place: str) -> str:
    if len(digits) != _UNICODE_DIGITS or not all(c in "0123456789abcdefABCDEF" for c in digits):
        raise PropertyTextError(f"{place}: \\u{digits} is not \\u with four hexadecimal digits")
    return chr(int(digits, 16))


def _key_text(key: str) -> str:
    return "".join(f"\\{c}" if c in " =:#!" else c for c in _escaped(key))


def _value_text(value: str) -> str:
    escaped = _escaped(value)
    return f"\\{escaped}" if escaped.startswith(" ") else escaped


def _escaped(text: str) -> str:
    return "".join(
        f"\\{_CONTROL_NAMES[c]}" if c in _CONTROL_NAMES else "\\\\" if c == "\\" else c
        for c in text
    )
