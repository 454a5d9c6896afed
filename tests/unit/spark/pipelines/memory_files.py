"""Files of an archive in memory, which can die at any step."""

from dataclasses import dataclass, field


class DiedError(Exception):
    """The process is gone."""


@dataclass
class MemoryFiles:
    """Paths with texts; after so many changes nothing happens any more."""

    texts: dict[str, str] = field(default_factory=dict)
    changes_left: int = 1 << 60

    def names(self, folder: str) -> list[str]:
        prefix = f"{folder}/"
        return sorted(
            path.removeprefix(prefix)
            for path in self.texts
            if path.startswith(prefix) and "/" not in path.removeprefix(prefix)
        )

    def sizes_below(self, folder: str) -> dict[str, int]:
        prefix = f"{folder}/" if folder else ""
        return {path: len(text) for path, text in self.texts.items() if path.startswith(prefix)}

    def read_text(self, path: str) -> str:
        return self.texts[path]

    def create_text(self, path: str, text: str) -> None:
        self._change()
        if path in self.texts:
            raise FileExistsError(path)
        self.texts[path] = text

    def rename(self, old: str, new: str) -> None:
        self._change()
        self.texts[new] = self.texts.pop(old)

    def delete(self, path: str) -> None:
        for name in [one for one in self.texts if one == path or one.startswith(f"{path}/")]:
            self._change()
            del self.texts[name]

    def _change(self) -> None:
        if self.changes_left <= 0:
            raise DiedError
        self.changes_left -= 1
