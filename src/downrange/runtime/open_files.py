"""How many files and connections this process may have open."""

import resource


def raise_limit() -> int:
    """Allow as many as the system lets us; returns how many that are."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft < hard:
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    return hard
