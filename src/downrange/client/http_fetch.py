"""Fetches a small text by HTTP GET: the list of name servers behind a look-up address."""

import asyncio
import http.client
import urllib.error
import urllib.request
from typing import Final

TEXT_BYTES_MAX: Final = 64 * 1024
_SCHEMES: Final = ("http://", "https://")


async def fetch_text(address: str, timeout_s: float) -> str:
    """The text behind an address; `OSError` says why it cannot be had."""
    if not address.startswith(_SCHEMES):
        raise OSError(f"{address} is no address that begins with http:// or https://")
    async with asyncio.timeout(timeout_s * 2):
        return await asyncio.to_thread(_fetch, address, timeout_s)


def _fetch(address: str, timeout_s: float) -> str:
    # The scheme was checked, so nobody reads files with it.
    request = urllib.request.Request(address)  # noqa: S310
    try:
        with urllib.request.urlopen(request, timeout=timeout_s) as answer:  # noqa: S310
            data: bytes = answer.read(TEXT_BYTES_MAX)
    except urllib.error.HTTPError as error:
        with error:  # it holds the connection
            raise OSError(f"{address} answers {error.code} {error.reason}") from None
    except http.client.HTTPException as error:
        raise OSError(f"{address} does not speak HTTP: {error!r}") from error
    return data.decode("utf-8", "replace")
