"""Options of `format("rocketmq")` for reading: read once, checked before anything is asked.

Names are those of the Kafka connector where it has one. What is wrong is an `OptionError` that
names the option and says what is allowed; the text of a `ReadOptions` shows no secret.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from downrange.client.subscription import SubscriptionError, subscribe
from downrange.filtering.tags import EVERYTHING, SQL92_TYPE, TAG_TYPE
from downrange.model.topics import MessageQueue
from downrange.spark import offsets as offsets_text
from downrange.spark.columns import ALL_COLUMNS
from downrange.spark.connecting import Connecting
from downrange.spark.connection_options import credentials, name_servers, tls_settings
from downrange.spark.invalid_records import InvalidMessages
from downrange.spark.offsets import Offsets, topics_of
from downrange.spark.option_values import (
    OptionError,
    OptionTexts,
    group_name,
    invalid_messages,
    seconds_of_ms,
    shown_columns,
    switch,
    topic_names,
    whole,
)

EARLIEST: Final = "earliest"
LATEST: Final = "latest"
# A group that every broker knows without being told; administrators' tools pull with it too.
DEFAULT_GROUP: Final = "TOOLS_CONSUMER"
PULL_BATCH_SIZE: Final = 8_192
_COUNT_MAX: Final = (1 << 62) - 1
_MS_MAX: Final = 24 * 3_600_000
_TIME_MS_MAX: Final = (1 << 62) - 1
_PARTITIONS_MAX: Final = 1_000_000
_RETRIES_MAX: Final = 10_000

_ONLY_BATCH: Final = (
    "endingOffsets", "endingTimestamp", "endingOffsetsByTimestamp", "dropDuplicates", "pushFilters",
)  # fmt: skip
_ONLY_STREAM: Final = ("maxOffsetsPerTrigger", "maxBytesPerTrigger")
_BOTH: Final = (
    "nameServers", "subscribe", "subscribePattern", "assign", "startingOffsets",
    "startingTimestamp", "startingOffsetsByTimestamp", "minPartitions", "maxRecordsPerPartition",
    "failOnDataLoss", "tags", "sql92", "groupId", "includeProperties", "fields", "accessKey",
    "secretKey", "securityToken", "useTls", "tlsTrustCertPath", "tlsCertPath", "tlsKeyPath",
    "tlsKeyPassword", "tlsServerName", "tlsVerify", "pullBatchSize", "fetchRetries",
    "fetchRetryIntervalMs", "fetchTimeoutMs", "checkCrc",
    "invalidMessages",
)  # fmt: skip
_KNOWN: Final = {name.lower(): name for name in (*_BOTH, *_ONLY_BATCH, *_ONLY_STREAM)}
_WHAT: Final = "reading from rocketmq"


@dataclass(frozen=True, slots=True, kw_only=True)
class Position:
    """Where to begin or to end: a word for all queues, times, or offsets of single queues.

    Queues that nothing is said of are read from the earliest and to the latest offset.
    """

    word: str
    offsets: Offsets = field(default_factory=dict)
    time_ms: int | None = None
    times_ms: Mapping[str, int] = field(default_factory=dict)

    def time_of(self, topic: str) -> int | None:
        """The time for a topic, if the position is one in time."""
        return self.times_ms.get(topic, self.time_ms)


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadOptions:
    """What a read was told; picklable."""

    connecting: Connecting
    topics: tuple[str, ...] = ()
    topic_pattern: str = ""
    queues: frozenset[MessageQueue] = frozenset()
    start: Position
    end: Position
    min_partitions: int = 0
    partition_records_max: int = 0
    fail_on_data_loss: bool = True
    tags: str = EVERYTHING
    wanted_tags: frozenset[str] = frozenset()
    sql92: str = ""
    group: str = ""
    include_properties: bool = True
    fields: tuple[str, ...] = ALL_COLUMNS
    invalid_messages: InvalidMessages = InvalidMessages.FAIL
    pull_batch_size: int = PULL_BATCH_SIZE
    check_crc: bool = False
    drop_duplicates: bool = False
    push_filters: bool = False
    offsets_per_trigger_max: int = 0
    bytes_per_trigger_max: int = 0

    @property
    def pull_group(self) -> str:
        """The group that pulls go by."""
        return self.group or DEFAULT_GROUP

    @property
    def expression(self) -> tuple[str, str]:
        """Type and text of what the broker filters by."""
        return (SQL92_TYPE, self.sql92) if self.sql92 else (TAG_TYPE, self.tags)


def read_options(given: Mapping[str, str], *, is_stream: bool | None) -> ReadOptions:
    """The options of a batch or a stream; `OptionError` for the first one that cannot be.

    None stands for "not known yet": Spark asks for the columns before it says which one it is.
    """
    texts = OptionTexts(given, _KNOWN, _WHAT)
    if is_stream is not None:
        _check_kind(texts, is_stream=is_stream)
    topics, pattern, queues = _subscription(texts)
    tags, wanted, sql92 = _filter(texts)
    group = texts.value("groupId", group_name, "")
    invalid = texts.value("invalidMessages", invalid_messages, InvalidMessages.FAIL)
    return ReadOptions(
        connecting=_connecting(texts),
        topics=topics,
        topic_pattern=pattern,
        queues=queues,
        start=_position(texts, "starting", LATEST if is_stream else EARLIEST),
        end=_position(texts, "ending", LATEST),
        min_partitions=texts.value("minPartitions", whole(1, _PARTITIONS_MAX), 0),
        partition_records_max=texts.value("maxRecordsPerPartition", whole(1, _COUNT_MAX), 0),
        fail_on_data_loss=texts.value("failOnDataLoss", switch, default=True),
        tags=tags,
        wanted_tags=wanted,
        sql92=sql92,
        group=group,
        include_properties=texts.value("includeProperties", switch, default=True),
        fields=shown_columns(texts, invalid),
        invalid_messages=invalid,
        pull_batch_size=texts.value("pullBatchSize", whole(1, 1_000_000), PULL_BATCH_SIZE),
        check_crc=texts.value("checkCrc", switch, default=False),
        drop_duplicates=texts.value("dropDuplicates", switch, default=False),
        push_filters=texts.value("pushFilters", switch, default=False),
        offsets_per_trigger_max=texts.value("maxOffsetsPerTrigger", whole(1, _COUNT_MAX), 0),
        bytes_per_trigger_max=texts.value("maxBytesPerTrigger", whole(1, _COUNT_MAX), 0),
    )


def _check_kind(texts: OptionTexts, *, is_stream: bool) -> None:
    for name in _ONLY_BATCH if is_stream else _ONLY_STREAM:
        if texts.has(name):
            there, here = ("a batch", "a stream") if is_stream else ("a stream", "a batch")
            raise OptionError(f"option {name!r} is for reading {there}, and this is {here}")


def _connecting(texts: OptionTexts) -> Connecting:
    defaults = Connecting(name_servers=())
    return Connecting(
        name_servers=name_servers(texts),
        credentials=credentials(texts),
        tls=tls_settings(texts),
        timeout_s=texts.value("fetchTimeoutMs", seconds_of_ms(1, _MS_MAX), defaults.timeout_s),
        retries=texts.value("fetchRetries", whole(0, _RETRIES_MAX), defaults.retries),
        retry_interval_s=texts.value(
            "fetchRetryIntervalMs", seconds_of_ms(0, _MS_MAX), defaults.retry_interval_s
        ),
    )


def _subscription(texts: OptionTexts) -> tuple[tuple[str, ...], str, frozenset[MessageQueue]]:
    ways = ("subscribe", "subscribePattern", "assign")
    given = [name for name in ways if texts.has(name)]
    if len(given) != 1:
        raise OptionError(
            f"give one of the options 'subscribe', 'subscribePattern' and 'assign'; "
            f"there {'are ' + ' and '.join(given) if given else 'is none of them'}"
        )
    no_topics: tuple[str, ...] = ()
    no_queues: frozenset[MessageQueue] = frozenset()
    topics = texts.value("subscribe", topic_names, no_topics)
    pattern = texts.value("subscribePattern", _pattern, "")
    queues = texts.value("assign", offsets_text.parse_queues, no_queues)
    return (tuple(topics_of(queues)) if queues else topics), pattern, queues


def _filter(texts: OptionTexts) -> tuple[str, frozenset[str], str]:
    if texts.has("tags") and texts.has("sql92"):
        raise OptionError("give the option 'tags' or 'sql92': a broker filters by one of them")
    tags = texts.text("tags", EVERYTHING) or EVERYTHING
    try:
        wanted = subscribe("T", tags, TAG_TYPE, version_ms=0).tags_set
    except SubscriptionError as error:
        raise OptionError(f"option 'tags': {error}") from None
    sql92 = texts.text("sql92").strip()
    if texts.has("sql92") and not sql92:
        raise OptionError("option 'sql92' is empty; give an expression like \"price > 10\"")
    return tags, frozenset(wanted or ()), sql92


def _position(texts: OptionTexts, side: str, default: str) -> Position:
    ways = (f"{side}Offsets", f"{side}Timestamp", f"{side}OffsetsByTimestamp")
    offsets, time, times = ways
    given = [name for name in ways if texts.has(name)]
    if texts.has(offsets) and len(given) > 1:
        raise OptionError(f"options {' and '.join(map(repr, given))} say different things")
    if len(given) == 0:
        return Position(word=default)
    if not texts.has(offsets):
        return Position(
            word="",
            time_ms=texts.value(time, whole(0, _TIME_MS_MAX), None),
            times_ms=texts.value(times, offsets_text.parse_times, {}),
        )
    word = texts.text(offsets).strip()
    if word.lower() in {EARLIEST, LATEST}:
        if side == "ending" and word.lower() == EARLIEST:
            raise OptionError("option 'endingOffsets' cannot be earliest: nothing would be read")
        return Position(word=word.lower())
    return Position(
        word=EARLIEST if side == "starting" else LATEST,
        offsets=texts.value(offsets, lambda text: _offsets(text, side), {}),
    )


def _offsets(text: str, side: str) -> Offsets:
    try:
        return offsets_text.parse(text)
    except offsets_text.OffsetsError as error:
        words = "earliest, latest" if side == "starting" else "latest"
        raise ValueError(f"{error}; {words} or offsets of queues as JSON are allowed") from None


def _pattern(text: str) -> str:
    try:
        re.compile(text)
    except re.error as error:
        raise ValueError(f"{text!r} is no regular expression: {error}") from None
    return text
