"""How many files and connections this process may have open."""

import resource

ENOUGH = 1 << 20  # where the system sets no limit


def raise_limit() -> int:
    """Allow as many as the system lets us; returns how many that are."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = ENOUGH if hard == resource.RLIM_INFINITY else hard
    if soft == resource.RLIM_INFINITY or soft >= wanted:
        return wanted
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
    except (ValueError, OSError):  # some systems allow less than they say
        return soft
    return wanted
