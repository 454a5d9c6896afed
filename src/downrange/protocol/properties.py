"""The property text of a message: names and values in one UTF-8 string.

    name 0x01 value 0x02 name 0x01 value 0x02 …

A reader drops an entry without 0x01, with an empty name or with an empty value, lets the last of
two equal names win, and does without the last 0x02. A value may hold further 0x01 when read, and
never when written here. At most 32,767 bytes, since the length is a signed 16-bit number.
"""

from collections.abc import Mapping

from downrange.protocol.errors import LocalProtocolError
from downrange.protocol.java_text import decode_utf8

PROPERTIES_BYTES_MAX = 32_767
NAME_VALUE_SEPARATOR = "\x01"
PROPERTY_SEPARATOR = "\x02"
KEY_SEPARATOR = " "

_NAME_END = b"\x01"
_VALUE_END = b"\x02"
_VALUE_END_CODE = 2


def decode_properties(text: bytes) -> dict[str, str]:
    """Names and values in the order of the text; never fails, as Java's reader never does."""
    return decode_property_text(decode_utf8(text))


def decode_property_text(text: str) -> dict[str, str]:
    """The same for text that is already decoded, as it stands in a request header."""
    properties = {}
    for entry in text.split(PROPERTY_SEPARATOR):
        name, _, value = entry.partition(NAME_VALUE_SEPARATOR)
        if name and value:
            properties[name] = value
    return properties


def encode_properties(properties: Mapping[str, str]) -> bytes:
    """The property text; `LocalProtocolError` for what no reader could read back."""
    return _as_property_bytes(encode_property_text(properties))


def encode_property_text(properties: Mapping[str, str]) -> str:
    """The property text before UTF-8, as it stands in a request header.

    An empty value is written, as Java writes it, although every reader drops it.
    """
    parts = []
    for name, value in properties.items():
        if not name:
            raise LocalProtocolError(f"a property needs a name; its value is {value!r}")
        for text in (name, value):
            if NAME_VALUE_SEPARATOR in text or PROPERTY_SEPARATOR in text:
                raise LocalProtocolError(
                    f"property {name!r}: neither name nor value may hold the characters "
                    f"0x01 and 0x02, which separate properties"
                )
        parts.append(f"{name}{NAME_VALUE_SEPARATOR}{value}{PROPERTY_SEPARATOR}")
    return "".join(parts)


def find_property(text: bytes, name: bytes) -> bytes | None:
    """The value that `decode_properties` would give for one name, without decoding the rest."""
    head, found, tail = text.rpartition(name + _NAME_END)
    if not found:
        return None
    if head and head[-1] != _VALUE_END_CODE:
        return _search_entries(text, name)  # the name is the end of another one, or in a value
    return tail.partition(_VALUE_END)[0] or _search_entries(text, name)


def remove_property(text: bytes, name: bytes) -> bytes:
    """The text without any entry of this name; the other entries stay as they are."""
    if name + _NAME_END not in text:
        return text
    start = name + _NAME_END
    return b"".join(
        entry + _VALUE_END
        for entry in text.split(_VALUE_END)
        if entry and not entry.startswith(start)
    )


def replace_property(text: bytes, name: bytes, value: bytes) -> bytes:
    """The text with one entry of this name, at its first place or at the end."""
    _check_plain(name, value)
    start = name + _NAME_END
    entries = [entry for entry in text.split(_VALUE_END) if entry]
    place = next((at for at, entry in enumerate(entries) if entry.startswith(start)), len(entries))
    kept = [entry for entry in entries if not entry.startswith(start)]
    kept.insert(place, start + value)
    return _within_limit(_VALUE_END.join(kept) + _VALUE_END)


def append_property(text: bytes, name: bytes, value: bytes) -> bytes:
    """The text with one more entry at its end; the caller knows that the name is not in it."""
    _check_plain(name, value)
    if text and text[-1] != _VALUE_END_CODE:
        text += _VALUE_END
    return _within_limit(b"%b%b\x01%b\x02" % (text, name, value))


def split_keys(keys: str) -> list[str]:
    """The single keys of a KEYS property: separated by blanks, empty ones left out."""
    return [key for key in keys.split(KEY_SEPARATOR) if key]


def split_key_bytes(keys: bytes) -> list[bytes]:
    """The same over bytes, for the key index."""
    return [key for key in keys.split(b" ") if key]


def join_keys(keys: list[str]) -> str:
    """The KEYS property of several keys; a key with a blank in it would be read as two."""
    for key in keys:
        if not key or KEY_SEPARATOR in key:
            raise LocalProtocolError(f"key {key!r} is empty or has a blank in it")
    return KEY_SEPARATOR.join(keys)


def _search_entries(text: bytes, name: bytes) -> bytes | None:
    for entry in reversed(text.split(_VALUE_END)):
        entry_name, _, value = entry.partition(_NAME_END)
        if value and entry_name == name:
            return value
    return None


def _check_plain(name: bytes, value: bytes) -> None:
    both = name + value
    if not name or _NAME_END in both or _VALUE_END in both:
        raise LocalProtocolError(f"property {name!r}: {value!r} cannot be written")


def _as_property_bytes(text: str) -> bytes:
    try:
        return _within_limit(text.encode("utf-8"))
    except UnicodeEncodeError as error:
        raise LocalProtocolError(f"a property holds half a character: {error}") from error


def _within_limit(text: bytes) -> bytes:
    if len(text) > PROPERTIES_BYTES_MAX:
        raise LocalProtocolError(
            f"properties take {len(text)} bytes, {PROPERTIES_BYTES_MAX} are possible"
        )
    return text
