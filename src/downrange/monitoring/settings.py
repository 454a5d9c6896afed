"""Where a server shows itself to operators' tools."""

from dataclasses import dataclass
from enum import Enum
from typing import Final

from downrange.runtime.settings import setting

OFF: Final = -1
PORT_MAX: Final = 65_535


class Exporter(Enum):
    """RocketMQ's ways to give metrics away that are built here."""

    DISABLE = "DISABLE"
    PROM = "PROM"


@dataclass(frozen=True, slots=True, kw_only=True)
class MonitoringSettings:
    """The HTTP door; RocketMQ's own switch for Prometheus opens it too."""

    host: str = setting("httpHost", "127.0.0.1", about="address of /healthz, /readyz and /metrics")
    port: int = setting(
        "httpPort", OFF, least=OFF, most=PORT_MAX, about="their port; -1: none, 0: a free one"
    )
    exporter: Exporter = setting(
        "metricsExporterType", Exporter.DISABLE, about="PROM: as httpPort, on the port below"
    )
    prometheus_host: str = setting(
        "metricsPromExporterHost", "", about="address for PROM; httpHost if empty"
    )
    prometheus_port: int = setting(
        "metricsPromExporterPort", 5557, least=0, most=PORT_MAX, about="port for PROM"
    )

    @property
    def door(self) -> tuple[str, int] | None:
        """Host and port to listen on; None if nobody asked for it."""
        if self.port != OFF:
            return self.host, self.port
        if self.exporter is Exporter.PROM:
            return self.prometheus_host or self.host, self.prometheus_port
        return None
