"""A disk that loses power on demand: only what was synced is there afterwards.

disk = PowerCutDisk(tmp_path)
...                                   # a store writes, is abandoned, opens again
disk.cut_power()                      # nobody may have a file open
"""

import shutil
from pathlib import Path

from downrange.runtime.disk import Disk


class _Node:
    """A file or directory as it is on the disk: bytes at the last sync, or names at the last."""

    def __init__(self, *, is_directory: bool = False) -> None:
        self.is_directory = is_directory
        self.data = b""
        self.names: dict[str, _Node] = {}


class PowerCutDisk(Disk):
    """Real files below `root`, and a record of what of them is durable.

    The model is the strictest that POSIX allows: the bytes of a file survive as they were at its
    last sync, a name survives as it was when its directory was last synced, and nothing else does.
    `root` itself is durable. Every call below `root` must come through this disk.
    """

    def __init__(self, root: Path) -> None:
        self._root = root
        self._nodes: dict[Path, _Node] = {root: _Node(is_directory=True)}
        self._paths: dict[int, Path] = {}
        self._boot = 1
        self.synced: list[Path] = []  # files, one entry per sync

    def cut_power(self) -> None:
        """Leave on the disk what is durable, and start the machine anew."""
        shutil.rmtree(self._root)
        old = self._nodes[self._root]
        self._nodes = {}
        self._paths.clear()
        self._restore(self._root, old)
        self._boot += 1

    def boot_id(self) -> str:
        """Another one after each power cut."""
        return f"boot-{self._boot}"

    def write(self, path: Path, data: bytes) -> None:
        """As `Disk.write`, which syncs the bytes and not the name."""
        path.write_bytes(data)
        self._nodes.setdefault(path, _Node()).data = data

    def rename(self, source: Path, target: Path) -> None:
        """As `Disk.rename`; durable when the directory is synced."""
        super().rename(source, target)
        self._nodes[target] = self._nodes.pop(source)

    def unlink(self, path: Path) -> None:
        """As `Disk.unlink`; durable when the directory is synced."""
        super().unlink(path)
        self._nodes.pop(path, None)

    def make_directory(self, path: Path) -> None:
        """As `Disk.make_directory`; durable when the parents are synced."""
        super().make_directory(path)
        while path not in self._nodes and path.is_relative_to(self._root):
            self._nodes[path] = _Node(is_directory=True)
            path = path.parent

    def remove_directory(self, path: Path) -> None:
        """As `Disk.remove_directory`; durable when the parent is synced."""
        super().remove_directory(path)
        self._nodes.pop(path, None)

    def fsync_directory(self, path: Path) -> None:
        """The names in the directory survive from here on."""
        self._nodes[path].names = {
            entry.name: self._nodes[entry] for entry in path.iterdir() if entry in self._nodes
        }

    def open_file(self, path: Path, *, create: bool, writable: bool = True) -> int:
        """As `Disk.open_file`."""
        descriptor = super().open_file(path, create=create, writable=writable)
        self._nodes.setdefault(path, _Node())
        self._paths[descriptor] = path
        return descriptor

    def close_file(self, descriptor: int) -> None:
        """As `Disk.close_file`."""
        del self._paths[descriptor]
        super().close_file(descriptor)

    def sync(self, descriptor: int) -> None:
        """The bytes that the file has now survive."""
        path = self._paths[descriptor]
        self.synced.append(path)
        node = self._nodes.get(path)
        if node is not None:  # else it was deleted while it was open
            node.data = path.read_bytes()

    def _restore(self, path: Path, node: _Node) -> None:
        self._nodes[path] = node
        if not node.is_directory:
            path.write_bytes(node.data)
            return
        path.mkdir()
        for name, child in node.names.items():
            self._restore(path / name, child)
