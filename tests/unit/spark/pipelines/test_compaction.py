"""Which small files become larger ones."""

from downrange.spark.pipelines.compaction import Merge, plan_merges


def test_partitions_with_too_many_small_files_are_merged() -> None:
    files = {f"topic=a/date=1/f{number}": 10 for number in range(4)}
    files |= {f"topic=b/date=1/f{number}": 10 for number in range(3)}
    files["topic=a/date=1/large"] = 60
    merges = plan_merges(files, small_files_max=3, target_bytes=100)
    assert merges == [
        Merge("topic=a/date=1", tuple(f"topic=a/date=1/f{number}" for number in range(4)), 1)
    ]


def test_files_become_as_many_as_their_bytes_need() -> None:
    files = {f"topic=a/date=1/f{number}": 49 for number in range(5)}
    (merge,) = plan_merges(files, small_files_max=2, target_bytes=100)
    assert merge.files_count == 3


def test_what_cannot_become_fewer_stays() -> None:
    assert plan_merges({"topic=a/date=1/f": 1}, small_files_max=1, target_bytes=100) == []
