"""What a pipeline file says: one structure a table of the file, checked when it is read.

A kind of pipeline is a structure of its own, so that a key that another kind has is an error here.
"""

from datetime import datetime
from typing import Annotated, Final, Literal

import msgspec
from msgspec import Meta

from downrange.client.tls import TlsSettings
from downrange.model.names import TRACE_TOPIC

Name = Annotated[str, Meta(pattern=r"^[A-Za-z_][A-Za-z0-9_]*$", max_length=100)]
Text = Annotated[str, Meta(min_length=1)]
Count = Annotated[int, Meta(ge=1, le=1 << 53)]
Moment = Annotated[datetime, Meta(tz=True)]
Rate = Annotated[int, Meta(ge=0, le=10_000_000)]
Topic = Annotated[str, Meta(pattern=r"^[%|a-zA-Z0-9_-]+$", max_length=127)]

ArchiveFormat = Literal["parquet", "delta"]

MIB: Final = 1024 * 1024


class Part(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A table of the file."""


class SparkPart(Part, frozen=True, kw_only=True):
    """Where Spark runs: a master such as local[2] or spark://host:7077, and its settings."""

    master: str = ""
    conf: dict[str, str] = {}


class AccessPart(Part, frozen=True, kw_only=True):
    """Who we are at the brokers. Secrets are best written as ${NAME}, from the environment."""

    access_key: str = ""
    secret_key: str = ""
    security_token: str = ""
    use_tls: bool = False
    tls_ca_file: str = ""
    tls_certificate_file: str = ""
    tls_key_file: str = ""
    tls_key_password: str = ""
    tls_server_name: str = ""
    tls_verify: bool = True

    def __post_init__(self) -> None:
        if bool(self.access_key) != bool(self.secret_key):
            raise ValueError("access_key and secret_key are of use only together")

    def options(self) -> dict[str, str]:
        """The same for `format("rocketmq")`."""
        given = {
            "accessKey": self.access_key,
            "secretKey": self.secret_key,
            "securityToken": self.security_token,
            "useTls": "true" if self.use_tls else "",
            "tlsTrustCertPath": self.tls_ca_file,
            "tlsCertPath": self.tls_certificate_file,
            "tlsKeyPath": self.tls_key_file,
            "tlsKeyPassword": self.tls_key_password,
            "tlsServerName": self.tls_server_name,
            "tlsVerify": "" if self.tls_verify else "false",
        }
        return {name: value for name, value in given.items() if value}

    def tls(self) -> TlsSettings | None:
        """The same for the client; None without TLS."""
        if not self.use_tls:
            return None
        return TlsSettings(
            ca_file=self.tls_ca_file,
            certificate_file=self.tls_certificate_file,
            key_file=self.tls_key_file,
            key_password=self.tls_key_password,
            server_name=self.tls_server_name,
            verify=self.tls_verify,
        )


class TriggerPart(Part, frozen=True, kw_only=True):
    """How often a batch is made, and how large it may be."""

    interval: Text = "10 seconds"
    rows_max: Annotated[int, Meta(ge=0, le=1 << 53)] = 0


class Pipeline(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What every pipeline has."""

    kind: str
    name: Annotated[str, Meta(pattern=r"^[A-Za-z0-9_.-]+$", max_length=100)]
    name_servers: Text
    spark: SparkPart = SparkPart()
    access: AccessPart = AccessPart()

    def connecting(self) -> dict[str, str]:
        """Options that lead to the cluster."""
        return {"nameServers": self.name_servers, **self.access.options()}


class TopicsPart(Part, frozen=True, kw_only=True):
    """Which messages are read: topics by name or by a pattern, from where, and which of them."""

    topics: list[Topic] = []
    pattern: str = ""
    start: Text = "earliest"
    group: str = ""
    tags: str = ""
    sql92: str = ""
    options: dict[str, str] = {}

    def __post_init__(self) -> None:
        if bool(self.topics) == bool(self.pattern):
            raise ValueError("give one of topics and pattern")

    def read_options(self) -> dict[str, str]:
        """The same for `format("rocketmq")`; what stands in `options` comes last."""
        given = {
            "subscribe": ",".join(self.topics),
            "subscribePattern": self.pattern,
            "startingOffsets": self.start,
            "groupId": self.group,
            "tags": self.tags,
            "sql92": self.sql92,
        }
        return {name: value for name, value in given.items() if value} | self.options


class WatermarkPart(Part, frozen=True, kw_only=True):
    """How late a row may be."""

    column: Text
    delay: Text


class SourcePart(TopicsPart, frozen=True, kw_only=True):
    """A view that SQL steps read. With a schema its fields are columns, else bodies stay bytes.

    The schema of JSON is a list of columns as in CREATE TABLE, that of Avro is a record.
    """

    name: Name
    encoding: Literal["json", "avro"] = "json"
    schema: str = ""
    schema_file: str = ""
    bad_rows: Literal["dead-letter", "drop"] = "dead-letter"
    watermark: WatermarkPart | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.schema and self.schema_file:
            raise ValueError("give one of schema and schema_file")
        if self.encoding == "avro" and not self.is_typed:
            raise ValueError("encoding avro needs schema or schema_file")

    @property
    def is_typed(self) -> bool:
        """Whether bodies are decoded."""
        return bool(self.schema or self.schema_file)

    @property
    def has_dead_letters(self) -> bool:
        """Whether bodies that do not decode go to a topic."""
        return self.is_typed and self.bad_rows == "dead-letter"


class TablePart(Part, frozen=True, kw_only=True):
    """A table at rest, to join with."""

    name: Name
    path: Text
    format: Text = "parquet"
    options: dict[str, str] = {}


class StepPart(Part, frozen=True, kw_only=True):
    """A query over the views before it; its result is a view too."""

    name: Name
    sql: Text


class SinkPart(Part, frozen=True, kw_only=True):
    """Where a view goes: to a topic, or to a Parquet table."""

    view: Annotated[str, Meta(min_length=1)] = msgspec.field(name="from")
    topic: str = ""
    path: str = ""
    partition_by: list[Text] = []
    output_mode: Literal["append", "update"] = "append"
    keys: str = ""
    tags: str = ""
    ordering_key: str = ""
    options: dict[str, str] = {}

    def __post_init__(self) -> None:
        if bool(self.topic) == bool(self.path):
            raise ValueError("give one of topic and path")
        if self.path and (self.keys or self.tags or self.ordering_key):
            raise ValueError("keys, tags and ordering_key are of a topic, not of a path")
        if self.path and self.output_mode != "append":
            raise ValueError('output_mode of a path can only be "append"')
        if self.topic and self.partition_by:
            raise ValueError("partition_by is of a path, not of a topic")


class DeadLetterPart(Part, frozen=True, kw_only=True):
    """Where rows go that do not decode."""

    topic: Topic


class Transform(Pipeline, frozen=True, kw_only=True):
    """Topics, decoded, through SQL, to topics or tables."""

    checkpoint: Text
    source: Annotated[list[SourcePart], Meta(min_length=1)]
    sink: Annotated[list[SinkPart], Meta(min_length=1)]
    table: list[TablePart] = []
    step: list[StepPart] = []
    dead_letters: DeadLetterPart | None = None
    trigger: TriggerPart = TriggerPart()

    def __post_init__(self) -> None:
        views = [part.name for part in self.source]
        views += [part.name for part in self.table]
        views += [part.name for part in self.step]
        twice = {name for name in views if views.count(name) > 1}
        if twice:
            raise ValueError(f"the name {min(twice)!r} is given twice")
        for sink in self.sink:
            if sink.view not in views:
                raise ValueError(
                    f"sink: from is {sink.view!r}, which is none of {', '.join(views)}"
                )
        targets = [sink.topic or sink.path for sink in self.sink]
        if len(set(targets)) < len(targets):
            raise ValueError("two sinks have the same topic or path; join their views by UNION ALL")
        for source in self.source:
            if source.has_dead_letters and self.dead_letters is None:
                raise ValueError(
                    f"source {source.name!r}: where do rows go that do not decode? Give "
                    '[dead_letters] a topic, or the source bad_rows = "drop"'
                )


class CompactionPart(Part, frozen=True, kw_only=True):
    """When small files of a partition become one."""

    small_files_max: Count = 16
    target_bytes: Count = 128 * MIB


class Archive(Pipeline, frozen=True, kw_only=True):
    """Topics to Parquet files or a Delta table, by topic and date, each message once."""

    checkpoint: Text
    format: ArchiveFormat = "parquet"
    path: Text
    source: TopicsPart
    compaction: CompactionPart = CompactionPart()
    trigger: TriggerPart = TriggerPart()

    def __post_init__(self) -> None:
        for name in self.source.options:
            if name.lower() == "fields":
                raise ValueError(f"source.options: {name!r} is not allowed; files have all columns")


class SpanPart(Part, frozen=True, kw_only=True):
    """Messages that are there: of an archive or of topics, within times if they are given."""

    archive: str = ""
    format: ArchiveFormat = "parquet"
    topics: list[Topic] = []
    since: Moment | None = None
    until: Moment | None = None
    where: str = ""
    options: dict[str, str] = {}

    def __post_init__(self) -> None:
        if bool(self.archive) == bool(self.topics):
            raise ValueError("give one of archive and topics")
        if self.archive and self.options:
            raise ValueError("options are those of topics, not of an archive")
        if self.topics and self.format != "parquet":
            raise ValueError("format is that of an archive, not of topics")
        if self.since and self.until and self.since >= self.until:
            raise ValueError("since is not before until")


class TargetPart(Part, frozen=True, kw_only=True):
    """Where messages go again; rate is messages a second, 0 for as fast as it goes."""

    topic: Topic
    rate: Rate = 0
    queues: Literal["any", "same"] = "any"
    options: dict[str, str] = {}


class Replay(Pipeline, frozen=True, kw_only=True):
    """Messages of an archive or of a span of time, sent again."""

    source: SpanPart
    target: TargetPart

    def __post_init__(self) -> None:
        if self.target.topic in self.source.topics:
            raise ValueError(
                f"target: {self.target.topic!r} is a source too; messages would come twice in it"
            )


class ResendPart(Part, frozen=True, kw_only=True):
    """Dead letters go again to the topic that they came from, or to another one."""

    topic: str = ""
    rate: Rate = 0
    options: dict[str, str] = {}


class DeadLetters(Pipeline, frozen=True, kw_only=True):
    """What groups have given up and transforms could not decode: a report, and a resend."""

    groups: list[Topic] = []
    topics: list[Topic] = []
    where: str = ""
    period: Literal["minute", "hour", "day", "month"] = "day"
    report: str = ""
    resend: ResendPart | None = None


class Analytics(Pipeline, frozen=True, kw_only=True):
    """How long sending and consuming take, from message traces, and how far groups are behind."""

    trace_topics: list[Topic] = msgspec.field(default_factory=lambda: [TRACE_TOPIC])
    since: Moment | None = None
    until: Moment | None = None
    groups: list[Topic] = []
    top: Annotated[int, Meta(ge=1, le=1_000)] = 20
    html: str = ""


KINDS: Final[dict[str, type[Pipeline]]] = {
    "archive": Archive,
    "transform": Transform,
    "replay": Replay,
    "dead-letters": DeadLetters,
    "analytics": Analytics,
}
