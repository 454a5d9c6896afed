"""What every process has, under the names that Prometheus' own clients use."""

import os
import resource
import sys
from pathlib import Path
from typing import Final

from downrange.monitoring.exposition import Family

_PAGES: Final = Path("/proc/self/statm")
_DESCRIPTORS: Final = Path("/proc/self/fd")


def process_families(version: str) -> list[Family]:
    """Processor, memory and descriptors, as far as the system tells."""
    used = resource.getrusage(resource.RUSAGE_SELF)
    cpu = Family("process_cpu_seconds_total", "counter", "Processor time used")
    cpu.add(used.ru_utime + used.ru_stime)
    memory = Family("process_resident_memory_bytes", "gauge", "Memory in use")
    descriptors = Family("process_open_fds", "gauge", "Open file descriptors")
    limit = Family("process_max_fds", "gauge", "Most file descriptors that may be open")
    limit.add(resource.getrlimit(resource.RLIMIT_NOFILE)[0])
    try:
        pages = int(_PAGES.read_text(encoding="ascii").split()[1])
        memory.add(pages * os.sysconf("SC_PAGE_SIZE"))
        descriptors.add(len(os.listdir(_DESCRIPTORS)))  # noqa: PTH208 - names are enough
    except (OSError, IndexError, ValueError):
        pass  # not Linux: these are left out
    build = Family("downrange_build_info", "gauge", "1, with what this is as labels")
    build.add(1, version=version, python=".".join(str(part) for part in sys.version_info[:3]))
    return [cpu, memory, descriptors, limit, build]
