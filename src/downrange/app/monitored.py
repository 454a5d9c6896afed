"""A service with its HTTP port."""

import logging

from downrange.app.process import Service, StartError
from downrange.monitoring.http_server import HttpServer
from downrange.monitoring.pages import Observed, Pages
from downrange.monitoring.readiness import Lifecycle, Phase
from downrange.protocol.hosts import format_address
from downrange.remoting.network import Network

_log = logging.getLogger(__name__)


class MonitoredService:
    """Opens the HTTP port before the service: during a long recovery it is alive and not ready."""

    def __init__(
        self,
        service: Service,
        observed: tuple[Observed, ...],
        network: Network,
        door: tuple[str, int],
    ) -> None:
        self._service = service
        self._door = door
        self._lifecycle = Lifecycle()
        self._http = HttpServer(network, Pages(observed, self._lifecycle).by_path())

    async def start(self) -> str:
        """Open the HTTP port, then start the service."""
        host, port = self._door
        try:
            address = await self._http.listen(host, port)
        except OSError as error:
            raise StartError(
                f"the HTTP port {format_address(host, port)} is not available "
                f"({error.strerror or error}); stop the process that is listening there, or set "
                f"another httpPort"
            ) from error
        _log.info("pages /healthz /readyz /metrics address=%s", address)
        address = await self._service.start()
        self._lifecycle.phase = Phase.SERVING
        return address

    async def stop(self) -> None:
        """Stop the service, then close the HTTP port."""
        self._lifecycle.phase = Phase.STOPPING
        try:
            await self._service.stop()
        finally:
            self._http.close()
