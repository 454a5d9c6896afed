"""A cluster in a thread of its own, for programs that block and for tests.

with DevCluster(brokers=2) as cluster:
    mq = downrange.sync.connect(cluster.name_servers)
"""

import asyncio
import threading
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Final, Self, TypeVar

from downrange.broker.server import Broker
from downrange.embedded.cluster import ClusterError, EmbeddedCluster
from downrange.embedded.plan import ClusterPlan, Parts

CALL_S_MAX: Final = 60.0
T = TypeVar("T")


class DevCluster:
    """Name server and brokers on free ports, up when `start` returns; used from any thread.

    `with` and `async with` start and stop it. Every call returns when it is done, or raises after a
    minute.
    """

    def __init__(
        self,
        *,
        brokers: int = 1,
        data: Path | None = None,
        plan: ClusterPlan | None = None,
        parts: Parts | None = None,
        loop_factory: Callable[[], asyncio.AbstractEventLoop] = asyncio.SelectorEventLoop,
    ) -> None:
        self._plan = plan or ClusterPlan(broker_count=brokers, data=data)
        self._parts = parts
        self._loop_factory = loop_factory
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None
        self._cluster: EmbeddedCluster | None = None
        self.failures: list[tuple[str, BaseException]] = []

    # --- life ------------------------------------------------------------------------------

    def start(self) -> Self:
        """Start everything; `ClusterError` says why it could not."""
        if self._cluster is not None:
            raise ClusterError("the cluster was started already")
        cluster = EmbeddedCluster(
            self._plan,
            self._parts,
            on_failure=lambda name, error: self.failures.append((name, error)),
        )
        self._loop = loop = self._loop_factory()
        self._thread = threading.Thread(target=self._run, args=(loop,), daemon=True)
        self._thread.name = "downrange-cluster"
        self._thread.start()
        self._cluster = cluster
        try:
            self.run(cluster.start())
        except BaseException:
            self._end_thread()
            raise
        return self

    def stop(self) -> None:
        """Stop everything; may be called again."""
        if self._cluster is not None and self._thread is not None:
            try:
                self.run(self._cluster.stop())
            finally:
                self._end_thread()

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(self, *_: object) -> None:
        self.stop()

    async def __aenter__(self) -> Self:
        return await asyncio.to_thread(self.start)

    async def __aexit__(self, *_: object) -> None:
        await asyncio.to_thread(self.stop)

    # --- where it is -----------------------------------------------------------------------

    @property
    def name_servers(self) -> str:
        """What a client is given."""
        return self._started.name_servers

    @property
    def broker_addresses(self) -> dict[str, str]:
        """Where the brokers are, running or not."""
        return self._started.broker_addresses

    @property
    def broker_names(self) -> tuple[str, ...]:
        """broker-a, broker-b and so on."""
        return self._plan.broker_names

    # --- servers one by one ----------------------------------------------------------------

    def stop_broker(self, name: str = "broker-a") -> None:
        """Stop a broker in good order."""
        self.run(self._started.stop_broker(name))

    def start_broker(self, name: str = "broker-a") -> None:
        """Start a broker again, with its messages and at its old address."""
        self.run(self._started.start_broker(name))

    def restart_broker(self, name: str = "broker-a") -> None:
        """Stop a broker and start it again."""
        self.stop_broker(name)
        self.start_broker(name)

    def kill_broker(self, name: str = "broker-a") -> None:
        """End a broker as `kill -9` would; the name server does not hear of it at once."""
        self.run(self._started.kill_broker(name))

    def stop_name_server(self) -> None:
        """Stop the name server; clients live on what they know."""
        self.run(self._started.stop_name_server())

    def start_name_server(self) -> None:
        """Start the name server again; the brokers tell it who they are at their next turn."""
        self.run(self._started.start_name_server())

    # --- for whoever needs more ------------------------------------------------------------

    def run(self, coroutine: Coroutine[None, None, T], timeout_s: float = CALL_S_MAX) -> T:
        """Run a coroutine on the loop of the cluster and wait for its end."""
        loop, thread = self._loop, self._thread
        if loop is None or thread is None or thread is threading.current_thread():
            coroutine.close()
            raise ClusterError(
                "the cluster does not run; use it in `with`"
                if thread is None
                else "a blocking call from the thread of the cluster would wait for itself"
            )
        future = asyncio.run_coroutine_threadsafe(coroutine, loop)
        try:
            return future.result(timeout_s)
        except TimeoutError:
            if future.done():
                raise
            future.cancel()
            raise ClusterError(f"the cluster did not answer in {timeout_s:.0f} s") from None

    def broker(self, name: str = "broker-a") -> Broker:
        """A running broker; touch it only on the loop, by `run`."""
        return self._started.broker(name)

    @property
    def _started(self) -> EmbeddedCluster:
        if self._cluster is None:
            raise ClusterError("the cluster does not run; use it in `with`")
        return self._cluster

    def _run(self, loop: asyncio.AbstractEventLoop) -> None:
        asyncio.set_event_loop(loop)
        try:
            loop.run_forever()
        finally:
            loop.close()

    def _end_thread(self) -> None:
        thread, self._thread = self._thread, None
        if thread is not None and self._loop is not None:
            self._loop.call_soon_threadsafe(self._loop.stop)
            thread.join(CALL_S_MAX)
