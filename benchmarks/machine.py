"""Facts of the machine that a figure was measured on, and a loop to compare it with."""

import os
import platform
import time
from pathlib import Path


def facts() -> str:
    """One line: interpreter, processor, cores, memory, load."""
    model = platform.processor() or platform.machine()
    cpuinfo = Path("/proc/cpuinfo")
    if cpuinfo.exists():
        for line in cpuinfo.read_text(encoding="utf-8").splitlines():
            if line.startswith("model name"):
                model = line.split(":", 1)[1].strip()
                break
    memory_gib = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / (1 << 30)
    return (
        f"{platform.python_implementation()} {platform.python_version()}, {platform.system()} "
        f"{platform.release()}, {model}, {os.cpu_count()} cores, {memory_gib:.0f} GiB, "
        f"load {os.getloadavg()[0]:.1f}"
    )


def bare_loop_us(count: int = 20_000) -> float:
    """Microseconds of a fixed piece of plain Python, the unit in which noise cancels out.

    A call with three arguments, a dictionary look-up, a slice and a sum: about what a line of a
    message's way costs. Neighbours on a shared machine make everything slow for moments, so take
    it right beside what is measured.
    """
    table = {"topic": 1}
    data = bytes(64)

    def step(name: str, number: int, body: bytes) -> int:
        return table[name] + number + len(body[:8])

    start = time.perf_counter()
    for number in range(count):
        step("topic", number, data)
    return (time.perf_counter() - start) / count * 1e6


def anonymous_memory_mib() -> float:
    """Resident memory of this process without the pages of mapped files."""
    for line in Path("/proc/self/status").read_text(encoding="ascii").splitlines():
        if line.startswith("RssAnon"):
            return int(line.split()[1]) / 1024
    return 0.0
