"""Reads what scripts/capture_golden.py has captured; README.md says what there is."""

import base64
import gzip
import json
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import msgspec
from interop.message_lines import StoreFacts

DATA = Path(__file__).resolve().parent / "data"
CAPTURES = ("clean", "killed", "ipv6")

SEGMENT_BYTES = 64 * 1024
QUEUE_FILE_ENTRIES = 50
INDEX_SLOTS = 100
INDEX_ITEMS = 400


class CapturedFrame(msgspec.Struct, frozen=True, kw_only=True):
    """A frame with its length field; `link` says between whom, `sender` which side wrote it."""

    capture: str
    session: str
    link: str
    connection: int
    sender: str
    frame: bytes

    @property
    def is_from_4_9(self) -> bool:
        """Whether a client of release 4.9 wrote it."""
        return self.session.startswith("client-4.9") and self.sender == "client"


@cache
def frames() -> tuple[CapturedFrame, ...]:
    """Every captured frame, in the order of its session."""
    return tuple(
        CapturedFrame(
            capture=path.parent.parent.name,
            session=path.name.removesuffix(".jsonl.gz"),
            link=line["link"],
            connection=line["connection"],
            sender=line["sender"],
            frame=base64.b64decode(line["frame"]),
        )
        for path in sorted(DATA.glob("*/frames/*.jsonl.gz"))
        for line in map(json.loads, gzip.decompress(path.read_bytes()).splitlines())
    )


def facts(capture: str) -> StoreFacts:
    """What Apache's own client said about the store before the stop."""
    text = gzip.decompress((DATA / capture / "messages.jsonl.gz").read_bytes()).decode()
    return StoreFacts.of_lines(text.splitlines())


def manifest(capture: str) -> dict[str, dict[str, str | int]]:
    """Path -> size and SHA-256 of each file as it was on the disk."""
    content: dict[str, dict[str, str | int]] = json.loads(
        (DATA / capture / "store.json").read_text(encoding="ascii")
    )
    return content


def store_file(capture: str, path: str) -> bytes:
    """A file of the store as it was, with the zeros at its end."""
    size = manifest(capture)[path]["size"]
    assert isinstance(size, int)
    return (DATA / capture / "store" / path).read_bytes().ljust(size, b"\0")


def store_files(capture: str, folder: str) -> Iterator[tuple[str, bytes]]:
    """Path and content of all files below a folder of the store."""
    for path in manifest(capture):
        if path.startswith(f"{folder}/"):
            yield path, store_file(capture, path)


def restore_store(capture: str, root: Path) -> None:
    """Lay the captured store out below `root` as the broker left it."""
    for path in manifest(capture):
        target = root / path
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(store_file(capture, path))
