"""Options of `format("rocketmq")` for writing: read once on the driver, checked before any row.

What is wrong is an `OptionError` that names the option and says what is allowed; the text of a
`WriteOptions` shows no secret.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from downrange.client.acl_signature import Credentials
from downrange.client.settings import ClientSettings, ProducerSettings
from downrange.client.tls import TlsSettings
from downrange.spark.connection_options import credentials, name_servers, tls_settings
from downrange.spark.option_values import (
    OptionError,
    OptionTexts,
    group_name,
    seconds_of_ms,
    switch,
    topic_name,
    whole,
)

DEFAULT_GROUP: Final = "downrange-spark"
MESSAGE_BYTES_MAX: Final = 4 * 1024 * 1024  # maxMessageSize of a broker that was not told otherwise
BATCH_BYTES: Final = 256 * 1024
IN_FLIGHT: Final = 4
_IN_FLIGHT_MAX: Final = 256
_BYTES_MIN: Final = 1024
_BYTES_LIMIT: Final = 1 << 30
_MS_LIMIT: Final = 24 * 3_600_000
_RETRIES_LIMIT: Final = 100
_NEVER_COMPRESS: Final = 1 << 40
_FAIL_OR_DROP: Final = ("fail", "drop")

_NAMES: Final = (
    "nameServers", "topic", "producerGroup", "namespace", "accessKey", "secretKey",
    "securityToken", "useTls", "tlsTrustCertPath", "tlsCertPath", "tlsKeyPath", "tlsKeyPassword",
    "tlsServerName", "tlsVerify",
    "batchBytes", "maxMessageSize", "maxInFlight", "retries",
    "sendTimeoutMs", "deliveryTimeoutMs", "requireSendOk", "reservedProperties", "stampRows",
    # Spark passes these on with the options of a query.
    "checkpointLocation", "queryName",
)  # fmt: skip
_KNOWN: Final = {name.lower(): name for name in _NAMES}
_WHAT: Final = "writing to rocketmq"


@dataclass(frozen=True, slots=True, kw_only=True)
class WriteOptions:
    """What a write was told; picklable."""

    name_servers: tuple[str, ...]
    topic: str | None = None
    producer_group: str = DEFAULT_GROUP
    namespace: str = ""
    credentials: Credentials | None = field(default=None, repr=False)
    tls: TlsSettings | None = field(default=None, repr=False)
    batch_bytes: int = BATCH_BYTES
    message_bytes_max: int = MESSAGE_BYTES_MAX
    in_flight_max: int = IN_FLIGHT
    retries: int = 2
    send_timeout_s: float = 10.0
    delivery_timeout_s: float = 120.0
    requires_send_ok: bool = True
    drops_reserved: bool = False
    stamps_rows: bool = True

    def client_settings(self) -> ClientSettings:
        """How the tasks connect."""
        return ClientSettings(
            name_servers=self.name_servers,
            namespace=self.namespace,
            credentials=self.credentials,
            tls=self.tls,
        )

    def producer_settings(self) -> ProducerSettings:
        """How they send. Nothing is compressed: a batch cannot be, and rows shall be alike."""
        return ProducerSettings(
            send_timeout_s=self.send_timeout_s,
            retries=self.retries,
            message_bytes_max=self.message_bytes_max,
            compress_over_bytes=_NEVER_COMPRESS,
        )


def write_options(given: Mapping[str, str]) -> WriteOptions:
    """The options of a write; `OptionError` for the first one that cannot be."""
    texts = OptionTexts(given, _KNOWN, _WHAT)
    message_bytes_max = texts.value(
        "maxMessageSize", whole(_BYTES_MIN, _BYTES_LIMIT), MESSAGE_BYTES_MAX
    )
    batch_bytes = texts.value(
        "batchBytes", whole(_BYTES_MIN, _BYTES_LIMIT), min(BATCH_BYTES, message_bytes_max)
    )
    if batch_bytes > message_bytes_max:
        raise OptionError(
            f"option 'batchBytes' is {batch_bytes}, over 'maxMessageSize' {message_bytes_max}, "
            f"which is what brokers take at once"
        )
    time_ms = seconds_of_ms(1, _MS_LIMIT)
    return WriteOptions(
        name_servers=name_servers(texts),
        topic=texts.value("topic", topic_name, None),
        producer_group=texts.value("producerGroup", group_name, DEFAULT_GROUP),
        namespace=texts.text("namespace").strip(),
        credentials=credentials(texts),
        tls=tls_settings(texts),
        batch_bytes=batch_bytes,
        message_bytes_max=message_bytes_max,
        in_flight_max=texts.value("maxInFlight", whole(1, _IN_FLIGHT_MAX), IN_FLIGHT),
        retries=texts.value("retries", whole(0, _RETRIES_LIMIT), 2),
        send_timeout_s=texts.value("sendTimeoutMs", time_ms, 10.0),
        delivery_timeout_s=texts.value("deliveryTimeoutMs", time_ms, 120.0),
        requires_send_ok=texts.value("requireSendOk", switch, True),
        drops_reserved=texts.value("reservedProperties", _drops, False),
        stamps_rows=texts.value("stampRows", switch, True),
    )


def _drops(text: str) -> bool:
    lowered = text.strip().lower()
    if lowered not in _FAIL_OR_DROP:
        raise ValueError(f"{text!r} is neither fail nor drop")
    return lowered == _FAIL_OR_DROP[1]
