"""A sender who was answered can ask for its message: it is visible before anybody is read again."""

import asyncio
from pathlib import Path

from unit.store.building import open_store

from downrange.broker.store_keeper import StoreKeeper
from downrange.runtime.blocking import InLine
from downrange.runtime.service import Supervisor
from downrange.store.errors import PutStatus
from downrange.store.message_store import MessageStore
from downrange.store.settings import FlushMode, FlushSettings
from downrange.testing.virtual_time import run


def kept(root: Path, mode: FlushMode) -> tuple[MessageStore, StoreKeeper]:
    store = open_store(root, flush=FlushSettings(mode=mode))
    keeper = StoreKeeper(store, Supervisor(lambda *_: None), InLine())
    keeper.start()
    return store, keeper


def is_visible(store: MessageStore) -> bool:
    return store.dispatched_offset == store.log.max_offset > 0


def test_what_was_appended_is_visible_when_the_turn_says_that_it_is_over(tmp_path: Path) -> None:
    async def scenario() -> None:
        store, keeper = kept(tmp_path, FlushMode.ASYNC)
        keeper.show_appended()  # nothing was appended: nothing to be done
        store.append("T", 0, b"body", b"")
        keeper.note_append()
        assert not is_visible(store)
        keeper.show_appended()
        assert is_visible(store)
        await keeper.stop()
        store.close()

    run(scenario())


def test_without_such_a_word_it_is_visible_when_the_loop_comes_round(tmp_path: Path) -> None:
    async def scenario() -> None:
        store, keeper = kept(tmp_path, FlushMode.ASYNC)
        store.append("T", 0, b"body", b"")
        keeper.note_append()
        assert await seen_next(store)
        await keeper.stop()
        store.close()

    run(scenario())


def test_what_has_become_durable_is_visible_before_its_sender_can_ask_for_it(
    tmp_path: Path,
) -> None:
    async def scenario() -> None:
        store, keeper = kept(tmp_path, FlushMode.SYNC)
        placed = store.append("T", 0, b"body", b"")
        asked: asyncio.Future[bool] = asyncio.get_running_loop().create_future()

        def answered(status: PutStatus) -> None:
            assert status is PutStatus.PUT_OK
            # Whatever the sender does now is read in the next turn of the loop at the earliest.
            asyncio.get_running_loop().call_soon(lambda: asked.set_result(is_visible(store)))

        assert keeper.wait_durable(placed.end_offset, answered)
        keeper.note_append()
        assert await asked
        await keeper.stop()
        store.close()

    run(scenario())


async def seen_next(store: MessageStore) -> bool:
    """What is seen by one whose turn comes behind what is scheduled by now."""
    future: asyncio.Future[bool] = asyncio.get_running_loop().create_future()
    asyncio.get_running_loop().call_soon(lambda: future.set_result(is_visible(store)))
    return await future
