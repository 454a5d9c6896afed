"""The file that a broker's settings come from, and how a changed one gets into it."""

from collections.abc import Mapping
from pathlib import Path

from downrange.runtime.disk import Disk, make_durable_directory
from downrange.runtime.durable_file import DurableFile
from downrange.runtime.property_text import Property, read_properties, write_properties


class ConfigFile:
    """A property file that people also write; their comments and their order stay."""

    def __init__(self, disk: Disk, path: Path) -> None:
        self._disk = disk
        self._file: DurableFile[list[Property]] = DurableFile(
            disk, path, lambda data: read_properties(data, str(path))
        )
        self.path = path

    def set(self, changes: Mapping[str, str]) -> None:
        """Make the changes durable; `OSError` if the file cannot be written, and then is as before.

        The file as it was is kept under its name with `.bak`, as RocketMQ does.
        """
        make_durable_directory(self._disk, self.path.parent)
        data = self._disk.read(self.path) if self._disk.exists(self.path) else b""
        self._file.replace(edited(data, changes))


def edited(data: bytes, changes: Mapping[str, str]) -> bytes:
    """Property text with some values replaced where they stand, and new ones at the end."""
    lines = data.replace(b"\r\n", b"\n").replace(b"\r", b"\n").split(b"\n")
    if lines[-1] == b"":
        lines.pop()
    kept: list[bytes | None] = list(lines)
    last = {entry.key: entry.line for entry in read_properties(data) if entry.key in changes}
    for entry in read_properties(data):
        if entry.key in changes:
            index = entry.line - 1
            while _is_continued(lines[index]) and index + 1 < len(lines):
                kept[index + 1] = None
                index += 1
            # Of several lines with a key the last one counts.
            is_last = entry.line == last[entry.key]
            kept[entry.line - 1] = _line(entry.key, changes[entry.key]) if is_last else None
    kept += [_line(key, value) for key, value in sorted(changes.items()) if key not in last]
    return b"".join(line + b"\n" for line in kept if line is not None)


def _is_continued(line: bytes) -> bool:
    return (len(line) - len(line.rstrip(b"\\"))) % 2 == 1


def _line(key: str, value: str) -> bytes:
    return write_properties({key: value}).rstrip(b"\n")
