"""Signs requests for brokers with access control: HMAC-SHA1 over all fields and the body.

The values of the fields, sorted by name, then the body; the base64 text goes into the field
Signature. Java sorts names by UTF-16 unit, which for the ASCII names of headers is the same.
"""

import base64
import hashlib
import hmac
from dataclasses import dataclass, field
from typing import Final

ACCESS_KEY_FIELD: Final = "AccessKey"
SECURITY_TOKEN_FIELD: Final = "SecurityToken"  # noqa: S105 - the name of a field
SIGNATURE_FIELD: Final = "Signature"


@dataclass(frozen=True, slots=True)
class Credentials:
    """Who we say we are."""

    access_key: str
    secret_key: str = field(repr=False)
    security_token: str = field(default="", repr=False)

    def sign(self, fields: dict[str, str] | None, body: bytes | None) -> dict[str, str]:
        """The fields with access key and signature."""
        signed = dict(fields or {})
        signed.pop(SIGNATURE_FIELD, None)
        signed[ACCESS_KEY_FIELD] = self.access_key
        if self.security_token:
            signed[SECURITY_TOKEN_FIELD] = self.security_token
        text = "".join(value for _, value in sorted(signed.items()))
        signed[SIGNATURE_FIELD] = signature(text.encode() + (body or b""), self.secret_key)
        return signed


def signature(content: bytes, secret_key: str) -> str:
    """The signature of some bytes."""
    digest = hmac.new(secret_key.encode(), content, hashlib.sha1).digest()
    return base64.b64encode(digest).decode()
