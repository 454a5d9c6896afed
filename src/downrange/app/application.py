"""A program that is its handlers: functions by topic and group, run by `downrange run module:app`.

app = App("127.0.0.1:9876")

@app.on("orders", group="billing", tags="new || paid")
async def bill(order: Order) -> None: ...
"""

import asyncio
import inspect
import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Final, Literal, Self, TypeVar

from downrange.app.body_types import (
    Decoding,
    Handler,
    HandlerError,
    UndecodableError,
    call_of,
    decoding_of,
)
from downrange.client.client import Client, StartAt, connect, starting_settings
from downrange.client.consumer_settings import PushConsumerSettings
from downrange.client.errors import RocketMQError
from downrange.client.listeners import Batch, ThreadPool, is_coroutine_function
from downrange.client.message import ReceivedMessage
from downrange.client.push_consumer import PushConsumer
from downrange.client.session_table import SESSIONS, SessionTable
from downrange.client.settings import ClientSettings
from downrange.filtering.tags import EVERYTHING

_log = logging.getLogger(__name__)

CONCURRENCY: Final = 20  # Java's number of consuming threads
DEAD_LETTER_LEVEL: Final = -1
Undecodable = Literal["retry", "dead_letter", "drop"]
F = TypeVar("F", bound=Handler)


@dataclass(frozen=True, slots=True)
class _Route:
    """A handler and what it wants."""

    topic: str
    tags: str
    sql: str | None
    handler: Handler
    decoding: Decoding
    on_undecodable: Undecodable


@dataclass(frozen=True, slots=True)
class _GroupPlan:
    """What all handlers of a group share."""

    in_order: bool
    settings: PushConsumerSettings


class _Group:
    """One consumer and the handlers of its topics. Owned by the event loop."""

    def __init__(self, plan: _GroupPlan) -> None:
        self.plan = plan
        self.routes: dict[str, _Route] = {}
        self._consumer: PushConsumer | None = None
        self._threads: ThreadPool | None = None

    async def start(self, name: str, client: ClientSettings, sessions: SessionTable) -> None:
        settings = self.plan.settings
        self._threads = ThreadPool(settings.consume_threads_max, name)
        consumer = PushConsumer(name, client=client, settings=settings, sessions=sessions)
        for route in self.routes.values():
            if route.sql is None:
                consumer.subscribe(route.topic, route.tags)
            else:
                consumer.subscribe_sql(route.topic, route.sql)
        if self.plan.in_order:
            consumer.listen_in_order(self._listen)
        else:
            consumer.listen(self._listen)
        self._consumer = consumer
        await consumer.start()

    async def stop(self) -> None:
        if self._consumer is not None:
            await self._consumer.shutdown()
        if self._threads is not None:
            self._threads.close()

    async def _listen(self, batch: Batch, context: object) -> None:
        """An error raised here has the message come again."""
        del context
        (message,) = batch
        route = self.routes[message.topic]
        try:
            arguments = route.decoding.arguments(message)
        except UndecodableError as error:
            await self._undecodable(message, route, error)
            return
        if is_coroutine_function(route.handler):
            result = call_of(route.handler)(arguments)
        else:
            assert self._threads is not None
            result = await self._threads.run(partial(call_of(route.handler), arguments))
        if inspect.isawaitable(result):
            await result

    async def _undecodable(
        self, message: ReceivedMessage, route: _Route, error: UndecodableError
    ) -> None:
        name = getattr(route.handler, "__qualname__", repr(route.handler))
        _log.error(
            "the body of message %s of topic %s is not what %s wants (%s): %s",
            message.message_id,
            message.topic,
            name,
            route.on_undecodable,
            error,
        )
        if route.on_undecodable == "drop":
            return
        if route.on_undecodable == "dead_letter":
            assert self._consumer is not None
            if await self._consumer.send_back(message, DEAD_LETTER_LEVEL):
                return
        raise error


class App:
    """Handlers by topic and group, and one client that they share.

    Started and stopped once. `mq` is the client while it runs, for handlers that send.
    """

    def __init__(
        self,
        name_servers: str | Sequence[str] = (),
        *,
        settings: ClientSettings | None = None,
        sessions: SessionTable = SESSIONS,
    ) -> None:
        self.settings = settings or ClientSettings(name_servers=name_servers)
        self._sessions = sessions
        self._groups: dict[str, _Group] = {}
        self._mq: Client | None = None

    @property
    def mq(self) -> Client:
        """The client of the running app."""
        if self._mq is None:
            raise RocketMQError("the app does not run; start it, or use `downrange run`")
        return self._mq

    def on(
        self,
        topic: str,
        *,
        group: str,
        tags: str = EVERYTHING,
        sql: str | None = None,
        in_order: bool = False,
        concurrency: int = CONCURRENCY,
        start_at: StartAt | None = None,
        max_reconsume_times: int | None = None,
        on_undecodable: Undecodable | None = None,
        settings: PushConsumerSettings | None = None,
    ) -> Callable[[F], F]:
        """Have a function called with the messages of a topic; it stays what it was.

        Its parameter's annotation says what the body becomes. Returning acknowledges, raising has
        the message come again. A plain function runs in a thread. A group may have several topics,
        with one handler each and the same settings. A body that is something else is logged and
        comes again, or goes to the dead letters at once if `in_order`, lest it blocks the queue.
        """
        if sql is not None and tags != EVERYTHING:
            raise HandlerError("choose by tags or by sql, not by both")
        found = replace(
            starting_settings(settings or PushConsumerSettings(), start_at),
            consume_threads_min=concurrency,
            consume_threads_max=concurrency,
            consume_batch_size=1,
        )
        if max_reconsume_times is not None:
            found = replace(found, max_reconsume_times=max_reconsume_times)
        plan = _GroupPlan(in_order, found)
        undecodable = on_undecodable or ("dead_letter" if in_order else "retry")

        def register(handler: F) -> F:
            route = _Route(topic, tags, sql, handler, decoding_of(handler), undecodable)
            self._add(group, plan, route)
            return handler

        return register

    # --- life ------------------------------------------------------------------------------

    async def start(self) -> str:
        """Join all groups; returns which."""
        if not self._groups:
            raise HandlerError("the app has no handler; give it one with @app.on(topic, group=…)")
        self._mq = mq = connect(settings=self.settings, sessions=self._sessions)
        try:
            await mq.open()
            for name, group in self._groups.items():
                await group.start(name, mq.settings, self._sessions)
        except BaseException:
            await self.stop()
            raise
        described = ", ".join(
            f"{name} ({', '.join(group.routes)})" for name, group in self._groups.items()
        )
        _log.info("app runs, groups: %s", described)
        return described

    async def stop(self) -> None:
        """Let handlers end, keep offsets, leave all groups."""
        mq, self._mq = self._mq, None
        if mq is not None:
            await asyncio.gather(*(group.stop() for group in self._groups.values()))
            await mq.aclose()

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.stop()

    def _add(self, name: str, plan: _GroupPlan, route: _Route) -> None:
        group = self._groups.setdefault(name, _Group(plan))
        if group.plan != plan:
            raise HandlerError(
                f"the handlers of group {name!r} differ in their settings; a group consumes in one "
                f"way, so give them the same or another group"
            )
        if route.topic in group.routes:
            raise HandlerError(
                f"group {name!r} has a handler for topic {route.topic!r} already; a message goes "
                f"to one handler of a group, so give the second one another group"
            )
        group.routes[route.topic] = route
