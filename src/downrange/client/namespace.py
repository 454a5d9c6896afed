"""Names inside a namespace: `NS%topic`, with the retry and dead-letter prefixes in front.

    orders  ->  NS%orders        %RETRY%billing  ->  %RETRY%NS%billing

What belongs to RocketMQ itself has no namespace. Version 2 leaves names alone and puts the
namespace into a field of every request, for brokers and proxies that keep tenants apart by it.
"""

from typing import Final

from downrange.model.names import DLQ_PREFIX, RETRY_PREFIX, is_system_group, is_system_topic
from downrange.protocol.command import Command

SEPARATOR: Final = "%"


def with_namespace(name: str, namespace: str) -> str:
    """The name as the cluster knows it."""
    if not namespace or not name or _is_system(name):
        return name
    prefix, bare = _split(name)
    if bare.startswith(namespace + SEPARATOR):
        return name
    return f"{prefix}{namespace}{SEPARATOR}{bare}"


def without_namespace(name: str, namespace: str) -> str:
    """The name as the user knows it; names of other namespaces stay as they are."""
    if not namespace or not name or _is_system(name):
        return name
    prefix, bare = _split(name)
    start = namespace + SEPARATOR
    return prefix + bare.removeprefix(start) if bare.startswith(start) else name


class NamespaceV2Hook:
    """Says in every request to which namespace it belongs; names stay as they are."""

    def __init__(self, namespace: str) -> None:
        self._fields = {"nsd": "true", "ns": namespace}

    def before_request(
        self, address: str, code: int, fields: dict[str, str] | None, body: bytes | None
    ) -> dict[str, str]:
        """The fields with the namespace."""
        del address, code, body
        return {**(fields or {}), **self._fields}

    def after_response(self, address: str, code: int, response: Command) -> None:
        """Nothing to see."""


def _split(name: str) -> tuple[str, str]:
    for prefix in (RETRY_PREFIX, DLQ_PREFIX):
        if name.startswith(prefix):
            return prefix, name.removeprefix(prefix)
    return "", name


def _is_system(name: str) -> bool:
    return is_system_topic(name) or is_system_group(name)
