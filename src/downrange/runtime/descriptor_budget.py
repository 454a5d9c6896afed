"""How a process divides its file descriptors between connections and mapped files."""

from dataclasses import dataclass
from pathlib import Path

# Standard streams, listeners, the event loop, the log, the lock, small files while they are saved.
RESERVED = 64
DESCRIPTORS_PER_FILE = 2  # Python's mmap keeps a duplicate
MAPPINGS_DEFAULT = 65_530  # the kernel's default of vm.max_map_count
FILES_MAX = 16_384  # more would only make a graceful shutdown slower: each may have to be synced
FILES_MIN = 8
_MAPPINGS_PATH = Path("/proc/sys/vm/max_map_count")


@dataclass(frozen=True, slots=True)
class DescriptorBudget:
    """How many connections may be accepted, and how many files may be mapped at a time."""

    connections: int
    files: int


def divide(descriptors: int, mappings: int, connections_max: int) -> DescriptorBudget:
    """The budget of a process that may have so many descriptors and mappings.

    Connections get half, files what is left. Half of the mappings remain for the interpreter and
    its libraries.
    """
    available = max(descriptors - RESERVED, 0)
    connections = min(available // 2, connections_max)
    files = (available - connections) // DESCRIPTORS_PER_FILE
    return DescriptorBudget(
        connections=max(connections, 1),
        files=max(min(files, mappings // 2, FILES_MAX), FILES_MIN),
    )


def mappings_max() -> int:
    """How many mappings the kernel allows a process; its default where it does not say."""
    try:
        return int(_MAPPINGS_PATH.read_text(encoding="ascii"))
    except (OSError, ValueError):
        return MAPPINGS_DEFAULT
