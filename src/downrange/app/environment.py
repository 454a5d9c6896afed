"""Settings from environment variables: DOWNRANGE_ and the key of the setting, in capitals."""

import difflib
import logging
from collections.abc import Iterable, Mapping
from typing import Final

from downrange.runtime.property_text import Property

_log = logging.getLogger(__name__)

PREFIX: Final = "DOWNRANGE_"
_LIKE: Final = 0.85  # how much a misspelt variable resembles a real one


def environment_properties(environ: Mapping[str, str], keys: Iterable[str]) -> list[Property]:
    """What the environment says about these settings; a variable that is almost one is logged."""
    known = {PREFIX + key.upper(): key for key in keys}
    found = []
    for name, value in environ.items():
        if name in known:
            found.append(Property(known[name], value, f"environment variable {name}"))
        elif name.startswith(PREFIX):
            close = difflib.get_close_matches(name, known, n=1, cutoff=_LIKE)
            if close:
                _log.warning("environment: %s is no setting; do you mean %s?", name, close[0])
    return found
