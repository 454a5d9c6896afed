"""How long a thread was ready to run and had no processor.

A busy machine makes an event loop late without any callback being long. The scheduler of Linux
counts that time per thread; where it does not, nothing is known and the wait counts as zero.
"""

import os
from collections.abc import Callable

_SCHEDSTAT = "/proc/thread-self/schedstat"
_FIELD_BYTES_MAX = 64


def processor_wait() -> Callable[[], float]:
    """A function that returns the seconds so far that the calling thread waited for a processor.

    It always answers for the thread that calls it first.
    """
    descriptor: int | None = None

    def waited_s() -> float:
        nonlocal descriptor
        try:
            if descriptor is None:
                descriptor = os.open(_SCHEDSTAT, os.O_RDONLY | os.O_CLOEXEC)
            _, waited_ns, _ = os.pread(descriptor, _FIELD_BYTES_MAX, 0).split()
        except (OSError, ValueError):
            return 0.0
        return int(waited_ns) / 1e9

    return waited_s
