"""Text of others made safe to show: in a log, where a line is an event, and in a terminal."""

import re
from typing import Final

# Control characters, which end lines and drive terminals; separators that some viewers take for
# the end of a line; marks that change the direction of what follows; halves of surrogate pairs,
# which cannot be written as UTF-8.
_UNSAFE: Final = re.compile(
    "[\x00-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ufeff\ud800-\udfff]"
)
_SHORT: Final = {"\n": r"\n", "\r": r"\r", "\t": r"\t"}


def printable(text: str) -> str:
    """The text with everything escaped that is not to be shown as it is, such as `\\x1b`."""
    return text if text.isprintable() else _UNSAFE.sub(_escape, text)


def printable_lines(text: str) -> str:
    """The same for a text that may have several lines."""
    return "\n".join(printable(line) for line in text.split("\n"))


def printable_json(text: str) -> str:
    """JSON text with the same escaped in JSON's way; line breaks between values stay."""
    return _UNSAFE.sub(_escape_in_json, text)


def shortened(text: str, chars_max: int) -> str:
    """The text, or its beginning and how much was cut off."""
    if len(text) <= chars_max:
        return text
    return f"{text[:chars_max]}... ({len(text) - chars_max} more characters)"


def shortened_left(text: str, chars_max: int) -> str:
    """The text, or its end and how much was cut off before it."""
    if len(text) <= chars_max:
        return text
    return f"({len(text) - chars_max} more characters) ...{text[-chars_max:]}"


def _escape(found: re.Match[str]) -> str:
    char = found[0]
    code = ord(char)
    return _SHORT.get(char) or (f"\\x{code:02x}" if code <= 0xFF else f"\\u{code:04x}")  # noqa: PLR2004 - one byte


def _escape_in_json(found: re.Match[str]) -> str:
    return "\n" if found[0] == "\n" else f"\\u{ord(found[0]):04x}"
