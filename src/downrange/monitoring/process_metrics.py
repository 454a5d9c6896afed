"""What every process has, under the names that Prometheus' own clients use."""

import os
import resource
import sys
from pathlib import Path
from typing import Final

from downrange.monitoring.exposition import Exposition

_PAGES: Final = Path("/proc/self/statm")
_DESCRIPTORS: Final = Path("/proc/self/fd")


def add_process_families(page: Exposition, version: str) -> None:
    """Add processor time, memory and descriptors, as far as the system tells."""
    section = page.section()
    used = resource.getrusage(resource.RUSAGE_SELF)
    cpu = section.counter("process_cpu_seconds_total", "Processor time used")
    cpu.add(used.ru_utime + used.ru_stime)
    memory = section.gauge("process_resident_memory_bytes", "Memory in use")
    descriptors = section.gauge("process_open_fds", "Open file descriptors")
    limit = section.gauge("process_max_fds", "Most file descriptors that may be open")
    limit.add(resource.getrlimit(resource.RLIMIT_NOFILE)[0])
    try:
        pages = int(_PAGES.read_text(encoding="ascii").split()[1])
        memory.add(pages * os.sysconf("SC_PAGE_SIZE"))
        descriptors.add(len(os.listdir(_DESCRIPTORS)))  # noqa: PTH208 - names are enough
    except (OSError, IndexError, ValueError):
        pass  # not Linux: these are left out
    build = section.gauge("downrange_build_info", "1, with what this is as labels")
    build.add(1, version=version, python=".".join(str(part) for part in sys.version_info[:3]))
