"""Decides which small files of an archive become larger ones."""

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Merge:
    """Some files of a partition, and how many they shall be."""

    partition: str
    paths: tuple[str, ...]
    files_count: int


def plan_merges(
    files: Mapping[str, int], *, small_files_max: int, target_bytes: int
) -> list[Merge]:
    """Partitions with more small files than allowed; files of half the target or more stay."""
    small: dict[str, dict[str, int]] = {}
    for path, size in files.items():
        if size * 2 < target_bytes:
            small.setdefault(path.rpartition("/")[0], {})[path] = size
    merges = []
    for partition, sizes in sorted(small.items()):
        count = -(-sum(sizes.values()) // target_bytes)
        if len(sizes) > small_files_max and count < len(sizes):
            merges.append(Merge(partition, tuple(sorted(sizes)), max(count, 1)))
    return merges
