"""Rows pass at a rate."""

import pyarrow as pa

from downrange.spark.pipelines.pacing import pace


def test_rows_pass_not_before_their_time_and_all_of_them() -> None:
    now = 100.0
    passed: list[tuple[float, int]] = []

    def sleep(seconds: float) -> None:
        nonlocal now
        now += seconds

    batches = iter([pa.RecordBatch.from_pydict({"n": list(range(25))}) for _ in range(2)])
    values: list[int] = []
    for piece in pace(batches, 50, lambda: now, sleep):
        passed.append((round(now - 100.0, 3), piece.num_rows))
        values += piece.column(0).to_pylist()
    assert passed == [(round(0.1 * at, 3), 5) for at in range(10)]
    assert values == [*range(25), *range(25)]


def test_a_slow_sender_is_not_slowed_further() -> None:
    now = 0.0
    slept: list[float] = []

    def later() -> float:
        nonlocal now
        now += 10.0
        return now

    batches = iter([pa.RecordBatch.from_pydict({"n": list(range(30))})])
    assert sum(piece.num_rows for piece in pace(batches, 100, later, slept.append)) == 30
    assert slept == []
