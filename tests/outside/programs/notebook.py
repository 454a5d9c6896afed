"""Runs cells in a real kernel, as a notebook does, and prints what each of them shows."""

import sys

from jupyter_client.manager import (  # type: ignore[import-not-found]  # only outside
    start_new_kernel,
)

SECONDS_MAX = 60.0
CELLS = (
    # A notebook runs its cells inside a running event loop.
    "import asyncio; print(asyncio.get_running_loop().is_running())",
    "from downrange import sync\nblocking = sync.connect(ADDRESS)\nblocking.open()\n"
    "print(blocking.send('notebook', b'from sync').status.value)",
    "import downrange\nmq = downrange.connect(ADDRESS)\nawait mq.open()\n"
    "print((await mq.send('notebook', b'from await')).status.value)",
    "bodies = []\n"
    "async for message in mq.consume('notebook', group='n1', start_at='first', idle_timeout_s=5):\n"
    "    bodies.append(message.body.decode())\n"
    "print(sorted(bodies))",
    "print(sorted(one.body.decode() for one in blocking.consume(\n"
    "    'notebook', group='n2', start_at='first', idle_timeout_s=5)))",
    "await mq.aclose()\nblocking.close()\nprint('closed')",
)


def main() -> None:
    """One line for each cell."""
    manager, client = start_new_kernel(startup_timeout=SECONDS_MAX)
    try:
        for cell in (f"ADDRESS = {sys.argv[1]!r}; print('kernel')", *CELLS):
            shown: list[str] = []

            def note(message: dict[str, dict[str, object]], shown: list[str] = shown) -> None:
                content = message["content"]
                shown.append(str(content.get("text") or content.get("evalue") or ""))

            client.execute_interactive(cell, timeout=SECONDS_MAX, output_hook=note)
            print("".join(shown).strip())  # noqa: T201 - what the test reads
    finally:
        client.stop_channels()
        manager.shutdown_kernel(now=True)


main()
