"""A page of a table, as GET_ALL_TOPIC_CONFIG and GET_ALL_SUBSCRIPTIONGROUP_CONFIG serve them."""

from collections.abc import Iterable

from downrange.model.topics import DataVersion
from downrange.protocol.bodies.json_body import decode_body
from downrange.protocol.errors import RemoteProtocolError

PAGE_MAX = 2_000  # splitMetadataSize


def page_of(
    names: Iterable[str],
    version: DataVersion,
    *,
    first: int | None,
    version_text: str | None,
    count_max: int | None,
) -> list[str]:
    """The names from `first` on, in order; all of them if the request says nothing of pages.

    Pages fit together only if the table stays the same, so a request with another version than the
    table's gets the first page again.
    """
    ordered = sorted(names)
    if first is None and version_text is None and count_max is None:
        return ordered
    start = first or 0
    if start < 0 or not version_text or _version(version_text) != version:
        start = 0
    limit = PAGE_MAX if count_max is None else max(min(count_max, PAGE_MAX), 0)
    return ordered[start : start + limit]


def _version(text: str) -> DataVersion | None:
    try:
        return decode_body(DataVersion, text.encode())
    except RemoteProtocolError:
        return None
