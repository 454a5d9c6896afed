"""A service with its HTTP door."""

import logging

from downrange.app.process import Service, StartError
from downrange.monitoring.http_server import HttpServer
from downrange.monitoring.pages import Observed, Pages
from downrange.protocol.hosts import format_address
from downrange.remoting.network import Network

_log = logging.getLogger(__name__)


class MonitoredService:
    """Starts the door before the service: during a long recovery it lives and is not ready."""

    def __init__(
        self,
        service: Service,
        observed: tuple[Observed, ...],
        network: Network,
        door: tuple[str, int],
    ) -> None:
        self._service = service
        self._door = door
        self._http = HttpServer(network, Pages(observed).by_path())

    async def start(self) -> str:
        """Open the door, then begin to serve."""
        host, port = self._door
        try:
            address = await self._http.listen(host, port)
        except OSError as error:
            raise StartError(
                f"the HTTP port {format_address(host, port)} cannot be had "
                f"({error.strerror or error}); stop who listens there, or set another httpPort"
            ) from error
        _log.info("pages /healthz /readyz /metrics address=%s", address)
        return await self._service.start()

    async def stop(self) -> None:
        """End the service, then close the door."""
        try:
            await self._service.stop()
        finally:
            self._http.close()
