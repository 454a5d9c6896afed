"""What Spark reports of a batch, as one line for people: rows, rows/s, lag, rows that were bad."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from downrange.spark.offsets import OffsetsError, from_json

BAD_ROWS: Final = "bad"
MS: Final = 1000


@dataclass(frozen=True, slots=True)
class BatchProgress:
    """One batch of one query; the lag is None where it is not known."""

    query: str
    batch_id: int
    rows: int
    rows_per_s: float
    duration_ms: int
    lag: int | None
    bad_rows: int | None

    def line(self) -> str:
        """For the terminal."""
        lag = "?" if self.lag is None else f"{self.lag}"
        bad = "" if self.bad_rows is None else f" bad={self.bad_rows}"
        return (
            f"{self.query} batch={self.batch_id} rows={self.rows} "
            f"rows/s={self.rows_per_s:.0f} lag={lag}{bad} took={self.duration_ms / MS:.1f}s"
        )


def read_progress(text: str) -> BatchProgress:
    """The progress that is in Spark's JSON."""
    data = json.loads(text)
    sources = data.get("sources") or []
    rate = data.get("processedRowsPerSecond")
    return BatchProgress(
        query=str(data.get("name") or data.get("id") or "query"),
        batch_id=int(data.get("batchId", -1)),
        rows=sum(int(source.get("numInputRows") or 0) for source in sources),
        rows_per_s=float(rate) if isinstance(rate, int | float) else 0.0,
        duration_ms=int((data.get("durationMs") or {}).get("triggerExecution", 0)),
        lag=_lag(sources),
        bad_rows=_bad_rows(data.get("observedMetrics") or {}),
    )


def _lag(sources: list[Mapping[str, object]]) -> int | None:
    lags = [_lag_of(source) for source in sources]
    known = [lag for lag in lags if lag is not None]
    return sum(known) if known else None


def _lag_of(source: Mapping[str, object]) -> int | None:
    try:
        latest, end = (
            from_json(_value(source.get(name))) for name in ("latestOffset", "endOffset")
        )
    except (OffsetsError, json.JSONDecodeError, TypeError):
        return None
    return sum(max(offset - end.get(queue, 0), 0) for queue, offset in latest.items())


def _value(found: object) -> object:
    """Spark gives an offset as JSON, or as a text that holds JSON."""
    return json.loads(found) if isinstance(found, str) else found


def _bad_rows(observed: Mapping[str, Mapping[str, object]]) -> int | None:
    counts = [
        int(str(metrics[BAD_ROWS] or 0)) for metrics in observed.values() if BAD_ROWS in metrics
    ]
    return sum(counts) if counts else None
