"""Options of `format("rocketmq-store")`: which store, which messages of it, what about damage."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from downrange.filtering.errors import FilterSyntaxError
from downrange.filtering.tags import parse_tags
from downrange.spark.columns import ALL_COLUMNS
from downrange.spark.invalid_records import InvalidMessages
from downrange.spark.option_values import (
    OptionError,
    OptionTexts,
    invalid_messages,
    shown_columns,
    switch,
    topic_names,
    whole,
)

SPLIT_BYTES: Final = 64 * 1024 * 1024
_SPLIT_BYTES_MIN: Final = 64 * 1024
_BYTES_LIMIT: Final = 1 << 40
TIME_MS_MAX: Final = (1 << 62) - 1
_FAIL_OR_SKIP: Final = ("fail", "skip")
_NAMES: Final = (
    "path", "subscribe", "startingTimestamp", "endingTimestamp", "tags", "fields",
    "includeProperties", "onDamage", "checkCrc", "brokerName", "splitBytes",
    "invalidMessages",
)  # fmt: skip
_KNOWN: Final = {name.lower(): name for name in _NAMES}
_WHAT: Final = "reading a rocketmq-store"


@dataclass(frozen=True, slots=True, kw_only=True)
class StoreOptions:
    """What a read of store files was told; picklable."""

    path: str
    topics: tuple[str, ...] = ()
    start_ms: int = -1
    end_ms: int = TIME_MS_MAX  # without this one
    tags: tuple[str, ...] = ()
    fields: tuple[str, ...] = ALL_COLUMNS
    invalid_messages: InvalidMessages = InvalidMessages.FAIL
    include_properties: bool = True
    skips_damage: bool = False
    check_crc: bool = True
    broker_name: str | None = None
    split_bytes: int = SPLIT_BYTES


def store_options(given: Mapping[str, str]) -> StoreOptions:
    """The options of a read; `OptionError` for the first one that cannot be."""
    texts = OptionTexts(given, _KNOWN, _WHAT)
    if not texts.text("path").strip():
        raise OptionError(
            "option 'path' is missing: the folder of a store, or its address (file:, s3:, hdfs:)"
        )
    time_ms = whole(0, TIME_MS_MAX)
    invalid = texts.value("invalidMessages", invalid_messages, InvalidMessages.FAIL)
    return StoreOptions(
        path=texts.text("path").strip(),
        topics=texts.value("subscribe", topic_names, ()),
        start_ms=texts.value("startingTimestamp", time_ms, -1),
        end_ms=texts.value("endingTimestamp", time_ms, TIME_MS_MAX),
        tags=texts.value("tags", _tags, ()),
        fields=shown_columns(texts, invalid),
        invalid_messages=invalid,
        include_properties=texts.value("includeProperties", switch, True),
        skips_damage=texts.value("onDamage", _skips, False),
        check_crc=texts.value("checkCrc", switch, True),
        broker_name=texts.text("brokerName").strip() or None,
        split_bytes=texts.value("splitBytes", whole(_SPLIT_BYTES_MIN, _BYTES_LIMIT), SPLIT_BYTES),
    )


def _tags(text: str) -> tuple[str, ...]:
    try:
        parsed = parse_tags(text)
    except FilterSyntaxError as error:
        raise ValueError(str(error)) from None
    return () if parsed.is_everything else tuple(sorted(parsed.tags))


def _skips(text: str) -> bool:
    lowered = text.strip().lower()
    if lowered not in _FAIL_OR_SKIP:
        raise ValueError(f"{text!r} is neither fail nor skip")
    return lowered == _FAIL_OR_SKIP[1]
