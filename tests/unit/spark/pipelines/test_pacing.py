"""Rows pass at a rate."""

from downrange.spark.pipelines.pacing import pace


def test_rows_pass_not_before_their_time_and_all_of_them() -> None:
    now = 100.0
    passed: list[tuple[int, float]] = []

    def sleep(seconds: float) -> None:
        nonlocal now
        now += seconds

    for row in pace(iter(range(50)), 50, lambda: now, sleep):
        passed.append((row, round(now - 100.0, 3)))  # noqa: PERF401 - time goes on meanwhile
    assert passed == [(row, round(row // 5 * 0.1, 3)) for row in range(50)]


def test_a_slow_sender_is_not_slowed_further() -> None:
    now = 0.0
    slept: list[float] = []

    def later() -> float:
        nonlocal now
        now += 10.0
        return now

    assert len(list(pace(iter(range(30)), 100, later, slept.append))) == 30
    assert slept == []
