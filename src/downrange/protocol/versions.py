"""Release numbers as peers announce them, and what depends on them.

A header carries the position of the sender's release in a fixed list (`MQVersion` in Java). Each
release has its snapshot just before it, so a release is odd and its snapshot even:

    0..15     3.0.0 with its alphas and betas
    16..65    3.0.1 .. 3.0.15, 3.1.0 .. 3.1.9
    66..211   3.2.0 .. 3.9.9, where 3.3 to 3.9 begin at patch 1
    212..611  4.0.0 .. 5.9.9, ten patches for each minor release
    612       anything later
"""

from typing import Final

from downrange.protocol.errors import LocalProtocolError


def _version_names() -> tuple[str, ...]:
    names = ["V3_0_0_SNAPSHOT", "V3_0_0_ALPHA1"]
    names += [f"V3_0_0_BETA{beta}" for beta in range(1, 6)]
    for beta in range(6, 10):
        names += [f"V3_0_0_BETA{beta}_SNAPSHOT", f"V3_0_0_BETA{beta}"]
    names.append("V3_0_0_FINAL")
    releases = [(3, 0, patch) for patch in range(1, 16)]
    releases += [(3, minor, patch) for minor in (1, 2) for patch in range(10)]
    releases += [(3, minor, patch) for minor in range(3, 10) for patch in range(1, 10)]
    releases += [
        (major, minor, patch) for major in (4, 5) for minor in range(10) for patch in range(10)
    ]
    for major, minor, patch in releases:
        name = f"V{major}_{minor}_{patch}"
        names += [f"{name}_SNAPSHOT", name]
    names.append("HIGHER_VERSION")
    return tuple(names)


VERSION_NAMES: Final = _version_names()
_NUMBER_BY_NAME: Final = {name: number for number, name in enumerate(VERSION_NAMES)}


def version_name(number: int) -> str:
    """Give Java's name of a release number; numbers past the list mean its last entry."""
    return VERSION_NAMES[max(0, min(number, len(VERSION_NAMES) - 1))]


def version_number(release: str) -> int:
    """Give the number of a release, written `4.9.4` or as Java names it, `V4_9_4`."""
    name = release if release in _NUMBER_BY_NAME else "V" + release.replace(".", "_")
    number = _NUMBER_BY_NAME.get(name)
    if number is None:
        raise LocalProtocolError(f"no release is called {release!r}; write it like '5.5.0'")
    return number


CURRENT_VERSION: Final = version_number("5.5.0")
"""What we announce: the release whose wire behaviour we follow."""

# From here on the broker honours the maxReconsumeTimes of a request.
RECONSUME_LIMIT_SINCE: Final = version_number("3.4.9")
# From here on the answer to GET_ROUTEINFO_BY_TOPIC is strict JSON, keys quoted and sorted.
STRICT_ROUTE_JSON_SINCE: Final = version_number("4.9.4")
# From here on `_UNIQUE_KEY_QUERY` takes part in the signature of a request.
UNIQUE_KEY_SIGNED_SINCE: Final = version_number("4.9.4")
# From here on a peer understands GO_AWAY and opens a new connection.
GO_AWAY_SINCE: Final = version_number("V5_3_2_SNAPSHOT")
