"""Tells the brokers how far a query has come, under a consumer group, for tools that show the lag.

The checkpoint of the query is the truth; this is its echo and is never read back. A position is
told only after Spark has written the batch before it into its commit log. A broker that cannot be
told is told the next time; the query goes on.
"""

import json
import logging
from collections.abc import Mapping
from dataclasses import replace
from typing import Final

from pyspark.sql.streaming.listener import (
    QueryIdleEvent,
    QueryProgressEvent,
    QueryStartedEvent,
    QueryTerminatedEvent,
    StreamingQueryListener,
)

from downrange.client.errors import RocketMQError
from downrange.model.topics import MessageQueue
from downrange.protocol.errors import ProtocolError
from downrange.spark.cluster import Cluster
from downrange.spark.connecting import Connecting
from downrange.spark.offsets import Offsets, OffsetsError, from_json
from downrange.spark.option_values import OptionError
from downrange.spark.read_options import read_options

_log = logging.getLogger(__name__)

TELL_S_MAX: Final = 3.0


class GroupProgress:
    """Commits positions that are new. Belongs to one thread.

    Nothing is tried twice and nothing waits for long: it must not hold up the query, and what is
    not told now is part of what is told next.
    """

    def __init__(self, connecting: Connecting, group: str) -> None:
        timeout_s = min(connecting.timeout_s, TELL_S_MAX)
        self._cluster = Cluster(replace(connecting, retries=0, timeout_s=timeout_s))
        self._group = group
        self._told: Offsets = {}
        self._failures: dict[str, str] = {}

    def close(self) -> None:
        """Close the connections."""
        self._cluster.close()

    def tell(self, offsets: Mapping[MessageQueue, int]) -> None:
        """Everything below these offsets has been processed for good."""
        news = {
            queue: offset for queue, offset in offsets.items() if self._told.get(queue) != offset
        }
        by_broker: dict[str, Offsets] = {}
        for queue, offset in news.items():
            by_broker.setdefault(queue.broker_name, {})[queue] = offset
        for broker_name, there in by_broker.items():
            try:
                self._cluster.commit(self._group, there)
            except (RocketMQError, ProtocolError) as error:
                self._failed(broker_name, str(error))
            else:
                self._told |= there
                self._failures.pop(broker_name, None)

    def _failed(self, broker_name: str, text: str) -> None:
        """Say it once: a stream without news comes back many times a second."""
        if self._failures.get(broker_name) != text:
            self._failures[broker_name] = text
            _log.warning(
                "offsets of group %s not committed at %s: %s", self._group, broker_name, text
            )


class GroupProgressListener(StreamingQueryListener):
    """Commits the end of every batch as soon as Spark reports it, the last one of a query too.

    The source itself commits when Spark comes back to it, which after the last batch of a query
    that is stopped does not happen. The options are those of the query's `readStream`.
    """

    def __init__(self, options: Mapping[str, str], query_name: str | None = None) -> None:
        self._options = read_options(options, is_stream=True)
        if not self._options.group:
            raise OptionError("option 'groupId' is missing: the group that progress is told under")
        self._query_name = query_name
        self._progress: GroupProgress | None = None

    def onQueryStarted(self, event: QueryStartedEvent) -> None:  # noqa: N802 - Spark's name
        """Nothing to tell yet."""

    def onQueryProgress(self, event: QueryProgressEvent) -> None:  # noqa: N802 - Spark's name
        """A batch is in the commit log."""
        if self._query_name is not None and event.progress.name != self._query_name:
            return
        for source in event.progress.sources:
            offsets = self._ours(source.endOffset)
            if offsets:
                self._teller().tell(offsets)

    def onQueryIdle(self, event: QueryIdleEvent) -> None:  # noqa: N802 - Spark's name
        """Nothing has changed."""

    def onQueryTerminated(self, event: QueryTerminatedEvent) -> None:  # noqa: N802 - Spark's name
        """The last batch was reported before."""

    def _teller(self) -> GroupProgress:
        if self._progress is None:
            self._progress = GroupProgress(self._options.connecting, self._options.group)
        return self._progress

    def _ours(self, text: str | None) -> Offsets:
        """The offsets of a source, if it is one that these options could be of."""
        try:
            offsets = from_json(json.loads(text or "null"))
        except (OffsetsError, json.JSONDecodeError):
            return {}
        topics = self._options.topics
        if topics and any(queue.topic not in topics for queue in offsets):
            return {}
        return offsets
