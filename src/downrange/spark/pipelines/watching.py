"""Watches running queries: a line a batch, an end when one fails or a stop is asked for."""

import time
from collections.abc import Callable, Sequence
from threading import Event
from typing import Final

from pyspark.sql.streaming.query import StreamingQuery

from downrange.spark.pipelines.progress import read_progress

POLL_S: Final = 0.3
STOP_S_MAX: Final = 60.0


class PipelineFailedError(Exception):
    """A query of the pipeline has failed; the text is Spark's."""


class Watch:
    """Follows the queries of one pipeline until all have ended.

    When `stop` is set, batches under way may end, for a minute at most; after `hurry` they are
    broken off, and run again when the pipeline goes on.
    """

    def __init__(
        self,
        queries: Sequence[StreamingQuery],
        stop: Event,
        hurry: Event,
        say: Callable[[str], None],
    ) -> None:
        self._queries = queries
        self._stop = stop
        self._hurry = hurry
        self._say = say
        self._told: dict[str, int] = {}

    def run(self) -> None:
        """Returns when all queries have ended; `PipelineFailedError` if one failed."""
        try:
            while any(query.isActive for query in self._queries):
                self._tell()
                if self._stop.is_set() or self._failed() is not None:
                    break
                self._stop.wait(POLL_S)
        finally:
            self._end()
        self._tell()
        failed = self._failed()
        if failed is not None:
            raise PipelineFailedError(failed)

    def _end(self) -> None:
        deadline_s = time.monotonic() + STOP_S_MAX
        for query in self._queries:
            batch = self._batch_of(query)
            while (
                query.isActive
                and query.status["isTriggerActive"]
                and self._batch_of(query) == batch
                and time.monotonic() < deadline_s
                and not self._hurry.wait(POLL_S)
            ):
                pass
            query.stop()

    def _batch_of(self, query: StreamingQuery) -> int:
        last = query.lastProgress
        return -1 if last is None else read_progress(last.json).batch_id

    def _tell(self) -> None:
        for query in self._queries:
            for progress in query.recentProgress:
                batch = read_progress(progress.json)
                # An idle trigger reports the number of the batch to come, with no rows in it.
                has_run = batch.rows > 0 or "addBatch" in progress.json
                if has_run and batch.batch_id > self._told.get(str(query.id), -1):
                    self._told[str(query.id)] = batch.batch_id
                    self._say(batch.line())

    def _failed(self) -> str | None:
        for query in self._queries:
            error = query.exception()
            if error is not None:
                return f"{query.name or query.id}: {error}"
        return None
