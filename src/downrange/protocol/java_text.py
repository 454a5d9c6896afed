"""UTF-8 as Java reads it: bytes that are not UTF-8 become replacement characters, never an error.

Java and Python agree on how many replacement characters a broken sequence gives, except for an
encoded surrogate (ED A0..BF xx), which is one for Java and up to three for Python.
"""

import re

_ENCODED_SURROGATE = re.compile(rb"\xed[\xa0-\xbf][\x80-\xbf]?")
_REPLACEMENT = "\ufffd".encode()


def decode_utf8(data: bytes) -> str:
    """The string that `new String(data, UTF_8)` gives in Java."""
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError:
        return _ENCODED_SURROGATE.sub(_REPLACEMENT, data).decode("utf-8", "replace")
