"""What a client can be told; names carry their units, defaults are those of the Java client."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final

from downrange.client.acl_signature import Credentials
from downrange.client.client_id import DEFAULT_INSTANCE
from downrange.client.errors import RocketMQError
from downrange.client.tls import TlsSettings
from downrange.model.names import AUTO_CREATE_TOPIC
from downrange.protocol.compression import DECOMPRESSED_BYTES_MAX
from downrange.protocol.errors import ProtocolError
from downrange.protocol.hosts import parse_address
from downrange.protocol.route_limits import QUEUES_MAX
from downrange.protocol.sys_flag import CompressionType

DEFAULT_PRODUCER_GROUP: Final = "DEFAULT_PRODUCER"
COMPRESS_LEVEL: Final = 5
NAME_SERVER_SEPARATOR: Final = ";"
_BATCH_BOUNDS: Final = (
    ("batch_bytes_max", 2 * 1024 * 1024),
    ("batch_delay_ms_max", 30_000),
    ("batch_total_bytes_max", 1 << 40),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientSettings:
    """What producers and consumers share; equal settings share one session.

    Name servers are a list ("a:9876;b:9876" or a sequence), or are looked up by HTTP GET at
    `name_server_lookup`, an address like http://jmenv.tbsite.net:8080/rocketmq/nsaddr.
    Setting `tls` switches TLS on; `use_tls` alone means `TlsSettings()`.
    """

    name_servers: str | Sequence[str] = ()
    name_server_lookup: str = ""
    client_ip: str = ""  # empty: the address of this machine
    instance_name: str = DEFAULT_INSTANCE
    unit_name: str = ""
    unit_mode: bool = False
    namespace: str = ""
    namespace_v2: str = ""  # told in every request, instead of in front of every name
    credentials: Credentials | None = field(default=None)
    use_tls: bool = False
    tls: TlsSettings | None = None
    vip_channel: bool = False
    heartbeat_v2: bool = False
    poll_name_server_interval_s: float = 30.0
    name_server_lookup_interval_s: float = 120.0
    heartbeat_interval_s: float = 30.0
    persist_offsets_interval_s: float = 5.0
    api_timeout_s: float = 3.0
    connect_timeout_s: float = 3.0
    trace: bool = False
    trace_topic: str = ""  # empty: RMQ_SYS_TRACE_TOPIC
    route_queues_max: int = QUEUES_MAX  # of one topic; a larger route is refused
    body_bytes_max: int = DECOMPRESSED_BYTES_MAX  # of a body that is decompressed

    def __post_init__(self) -> None:
        servers = self.name_servers
        texts = servers.split(NAME_SERVER_SEPARATOR) if isinstance(servers, str) else servers
        names = tuple(text.strip() for text in texts if text.strip())
        for name in names:
            _check_address(name)
        object.__setattr__(self, "name_servers", names)
        if self.use_tls and self.tls is None:
            object.__setattr__(self, "tls", TlsSettings())
        object.__setattr__(self, "use_tls", self.tls is not None)
        for name in (
            "poll_name_server_interval_s",
            "name_server_lookup_interval_s",
            "heartbeat_interval_s",
            "persist_offsets_interval_s",
            "api_timeout_s",
            "connect_timeout_s",
            "body_bytes_max",
            "route_queues_max",
        ):
            _check_positive(name, getattr(self, name))

    @property
    def name_server_list(self) -> tuple[str, ...]:
        """The name servers one by one."""
        assert isinstance(self.name_servers, tuple)
        return self.name_servers


@dataclass(frozen=True, slots=True, kw_only=True)
class ProducerSettings:
    """How a producer sends."""

    send_timeout_s: float = 3.0
    send_timeout_per_try_s: float | None = None
    retries: int = 2
    retries_async: int = 2
    retry_another_broker_when_not_stored: bool = False
    message_bytes_max: int = 4 * 1024 * 1024
    compress_over_bytes: int = 4 * 1024
    compress_type: CompressionType = CompressionType.ZLIB
    compress_level: int = COMPRESS_LEVEL
    create_topic_key: str = AUTO_CREATE_TOPIC
    default_topic_queue_nums: int = 4
    latency_fault_tolerance: bool = False
    fault_detector: bool = False  # asks brokers that did not answer whether they do again
    fault_detector_interval_s: float = 2.0
    fault_detector_timeout_s: float = 0.2
    auto_batch: bool = False  # messages wait for others of their topic and tag, and go together
    batch_bytes_max: int = 32 * 1024
    batch_delay_ms_max: int = 10
    batch_total_bytes_max: int = 32 * 1024 * 1024  # held by all batches; beyond, messages go alone
    backpressure: bool = False
    backpressure_count_max: int = 1024
    backpressure_bytes_max: int = 100 * 1024 * 1024
    topics: tuple[str, ...] = ()  # routes that are fetched before the first send

    def __post_init__(self) -> None:
        _check_positive("send_timeout_s", self.send_timeout_s)
        if self.send_timeout_per_try_s is not None:
            _check_positive("send_timeout_per_try_s", self.send_timeout_per_try_s)
        for name in ("fault_detector_interval_s", "fault_detector_timeout_s"):
            _check_positive(name, getattr(self, name))
        if self.fault_detector and not self.latency_fault_tolerance:
            raise RocketMQError(
                "fault_detector works for latency_fault_tolerance; switch that on too"
            )
        for name, highest in _BATCH_BOUNDS:
            if not 1 <= getattr(self, name) <= highest:
                raise RocketMQError(
                    f"{name} is {getattr(self, name)}; it must be from 1 to {highest}"
                )
        for name in ("retries", "retries_async"):
            if getattr(self, name) < 0:
                raise RocketMQError(f"{name} is {getattr(self, name)}; 0 means one try")
        # Java keeps back pressure above these floors, so that a program cannot lock itself out.
        object.__setattr__(self, "backpressure_count_max", max(10, self.backpressure_count_max))
        object.__setattr__(
            self, "backpressure_bytes_max", max(1024 * 1024, self.backpressure_bytes_max)
        )


def _check_address(name: str) -> None:
    try:
        parse_address(name)
    except ProtocolError as error:
        raise RocketMQError(
            f"name server {error}; give addresses like 127.0.0.1:9876, several with ; between"
        ) from None


def _check_positive(name: str, value: float) -> None:
    if not value > 0:
        raise RocketMQError(f"{name} is {value}; it must be greater than 0")
