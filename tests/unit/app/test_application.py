"""The decorator app: what handlers get, what becomes of what they cannot read, wrong handlers."""

import asyncio
import dataclasses
import logging
import threading
from pathlib import Path

import msgspec
import pydantic
import pytest
from unit.broker.one_broker import pass_time
from unit.client.consuming import Site, until
from unit.client.producing import stored

from downrange.app.application import App, Undecodable
from downrange.app.body_types import Handler, HandlerError, decoding_of
from downrange.app.process import StartError
from downrange.app.run import load_app
from downrange.client.errors import RocketMQError
from downrange.client.message import ReceivedMessage
from downrange.client.session_table import SessionTable
from downrange.testing.virtual_time import run


class Order(msgspec.Struct):
    number: int


@dataclasses.dataclass
class Refund:
    number: int


class Model(pydantic.BaseModel):  # type: ignore[explicit-any]  # in its own base class
    number: int = pydantic.Field(ge=1)


def app_of(site: Site) -> App:
    table = SessionTable(nonce=1, around=site.surroundings())
    return App(settings=site.client_settings(), sessions=table)


def test_the_annotation_says_what_a_handler_gets() -> None:
    def struct(order: Order) -> None: ...
    def data_class(refund: Refund, message: ReceivedMessage) -> None: ...
    def raw(body: bytes) -> None: ...
    def text(body: str) -> None: ...
    def table(body: dict[str, int]) -> None: ...
    def plain_table(body: dict) -> None: ...  # type: ignore[type-arg]
    def model(body: Model) -> None: ...
    def alone(message: ReceivedMessage) -> None: ...

    message = ReceivedMessage("t", b'{"number": 7}', 0, 0, 0, 0, 0, 0, b"", 0, b"", 0, 0, 0, 0, b"")
    assert decoding_of(struct).arguments(message) == (Order(7),)
    assert decoding_of(data_class).arguments(message) == (Refund(7), message)
    assert decoding_of(raw).arguments(message) == (message.body,)
    assert decoding_of(text).arguments(message) == ('{"number": 7}',)
    assert decoding_of(table).arguments(message) == ({"number": 7},)
    assert decoding_of(plain_table).arguments(message) == ({"number": 7},)
    assert decoding_of(model).arguments(message) == (Model(number=7),)
    assert decoding_of(alone).arguments(message) == (message,)
    wrong: list[tuple[Handler, bytes]] = [
        (struct, b'{"number": "x"}'),
        (struct, b"{"),
        (text, b"\xff"),
        (model, b"bad"),
        (model, b'{"number": 0}'),
        (table, b"[]"),
    ]
    for handler, body in wrong:
        message.body = body
        with pytest.raises(ValueError, match=r"Error: "):
            decoding_of(handler).arguments(message)


def test_what_cannot_be_a_handler_is_refused_at_once() -> None:
    app = App("127.0.0.1:9876")
    with pytest.raises(HandlerError, match=r"'order' of handler .* has no annotation"):
        app.on("t", group="g")(lambda order: None)  # noqa: ARG005
    with pytest.raises(HandlerError, match="takes 2 parameters"):

        @app.on("t", group="g")  # type: ignore[type-var]
        def two(a: int, b: int) -> None: ...

    with pytest.raises(HandlerError, match="cannot be read"):

        @app.on("t", group="g")
        def unknown(a: "Nothing") -> None: ...  # type: ignore[name-defined]  # noqa: F821

    with pytest.raises(HandlerError, match="by tags or by sql"):
        app.on("t", group="g", tags="a", sql="a = 1")

    @app.on("t", group="g")
    def good(body: bytes) -> None: ...

    with pytest.raises(HandlerError, match="has a handler for topic 't' already"):
        app.on("t", group="g")(good)
    with pytest.raises(HandlerError, match="differ in their settings"):
        app.on("u", group="g", concurrency=3)(good)
    with pytest.raises(RocketMQError, match="does not run"):
        _ = app.mq
    with pytest.raises(HandlerError, match="no handler"):
        asyncio.run(App("127.0.0.1:9876").start())


def test_handlers_of_several_topics_share_a_group_and_may_send(tmp_path: Path) -> None:
    async def main() -> None:
        async with Site(tmp_path) as site:
            for topic in ("orders", "refunds", "bills"):
                await site.create(topic)
            app = app_of(site)
            seen: list[object] = []

            @app.on("orders", group="billing", start_at="first", tags="new")
            async def bill(order: Order, message: ReceivedMessage) -> None:
                seen.append(order)
                await app.mq.send("bills", message.body)

            @app.on("refunds", group="billing", start_at="first")
            async def refund(body: Refund) -> None:
                seen.append(body)

            async with app:
                await app.mq.send("orders", b'{"number": 1}', tag="new")
                await app.mq.send("orders", b'{"number": 2}', tag="old")
                await app.mq.send("refunds", b'{"number": 3}')
                await until(lambda: len(seen) == 2)
                assert len(await site.members("billing")) == 1
            assert sorted(map(repr, seen)) == ["Order(number=1)", "Refund(number=3)"]
            assert [one.body for one in await stored(site, "bills")] == [b'{"number": 1}']
            assert await site.members("billing") == []

    run(main())


def test_an_error_in_a_handler_has_the_message_come_again(tmp_path: Path) -> None:
    async def main() -> None:
        async with Site(tmp_path) as site:
            await site.create("orders")
            app = app_of(site)
            tries: list[int] = []

            @app.on("orders", group="g", start_at="first")
            async def handle(message: ReceivedMessage) -> None:
                tries.append(message.reconsume_times)
                if len(tries) < 3:
                    raise ZeroDivisionError

            async with app:
                await app.mq.send("orders", b"x")
                await until(lambda: len(tries) == 3, 120)
            assert tries == [0, 1, 2]

    run(main())


@pytest.mark.parametrize(
    ("what", "in_order", "dead", "logged"),
    [
        (None, False, 0, 2),
        ("retry", False, 0, 2),
        ("dead_letter", False, 1, 1),
        (None, True, 1, 1),
        ("drop", False, 0, 1),
    ],
)
def test_where_an_undecodable_body_goes(
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
    what: Undecodable | None,
    in_order: bool,
    dead: int,
    logged: int,
) -> None:
    async def main() -> None:
        async with Site(tmp_path) as site:
            await site.create("orders")
            app = app_of(site)
            seen: list[Order] = []

            @app.on("orders", group="g", start_at="first", on_undecodable=what, in_order=in_order)
            async def handle(order: Order) -> None:
                seen.append(order)

            async with app:
                await app.mq.send("orders", b"no json")
                await app.mq.send("orders", b'{"number": 1}')
                await until(lambda: seen == [Order(1)])
                await pass_time(25)  # the first retry comes after 10 s, the second after 30 more
            if dead:
                (letter,) = await stored(site, "%DLQ%g")
                assert letter.body == b"no json"

    with caplog.at_level(logging.ERROR, logger="downrange.app"):
        run(main())
    lines = [one for one in caplog.records if "is not what" in one.getMessage()]
    assert len(lines) == logged


def test_a_plain_function_runs_in_a_thread(tmp_path: Path) -> None:
    names: list[str] = []
    done = threading.Event()

    async def main() -> None:
        async with Site(tmp_path) as site:
            await site.create("orders")
            app = app_of(site)

            @app.on("orders", group="g", start_at="first")
            def handle(body: str) -> None:
                names.append(f"{threading.current_thread().name} {body}")
                done.set()

            async with app:
                await app.mq.send("orders", b"x")
                async with asyncio.timeout(30):
                    while not done.is_set():
                        await asyncio.get_running_loop().run_in_executor(None, done.wait, 0.1)

    asyncio.run(main())  # real time: a thread is real too
    assert names[0].startswith("ConsumeMessageThread_g")
    assert names[0].endswith(" x")


def test_what_is_no_app_is_one_clear_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    (tmp_path / "shop_main.py").write_text(
        "import downrange\napp = downrange.App('127.0.0.1:1')\nother = 3\n"
    )
    assert isinstance(load_app("shop_main:app"), App)
    for place, text in [
        ("shop_main", "write module:name"),
        ("shop_nothing:app", "there is no module 'shop_nothing'"),
        ("shop_main:nothing", "is not there"),
        ("shop_main:other", "is a int, not an App"),
    ]:
        with pytest.raises(StartError, match=text):
            load_app(place)
