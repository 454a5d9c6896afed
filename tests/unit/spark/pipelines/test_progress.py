"""Lines of progress from what Spark reports."""

import json

from downrange.spark.pipelines.progress import read_progress

REPORT = {
    "name": "orders",
    "batchId": 4,
    "processedRowsPerSecond": 123.4,
    "durationMs": {"addBatch": 10, "triggerExecution": 2_500},
    "observedMetrics": {"orders": {"rows": 30, "bad": 2}},
    "sources": [
        {
            "numInputRows": 30,
            "endOffset": {"orders": {"a": {"0": 10, "1": 20}}},
            "latestOffset": json.dumps({"orders": {"a": {"0": 15, "1": 20, "2": 3}}}),
        }
    ],
}


def test_rows_lag_and_bad_rows() -> None:
    progress = read_progress(json.dumps(REPORT))
    assert progress.line() == "orders batch=4 rows=30 rows/s=123 lag=8 bad=2 took=2.5s"


def test_what_is_not_known_is_not_invented() -> None:
    text = json.dumps({"id": "x", "sources": [{"latestOffset": None, "endOffset": None}]})
    progress = read_progress(text)
    assert progress.lag is None
    assert progress.bad_rows is None
    assert "lag=?" in progress.line()
