"""Stores of the real RocketMQ, opened by ours: every message and every answer is the same."""

from pathlib import Path

import pytest
from golden.captured import (
    CAPTURES,
    INDEX_ITEMS,
    INDEX_SLOTS,
    QUEUE_FILE_ENTRIES,
    SEGMENT_BYTES,
    facts,
    restore_store,
    store_files,
)
from interop.message_lines import StoreFacts, assert_answers, assert_holds

from downrange.store.message_store import MessageStore
from downrange.store.settings import StoreSettings


def open_capture(capture: str, root: Path) -> MessageStore:
    restore_store(capture, root)
    store = MessageStore(
        StoreSettings(
            root=root,
            segment_bytes=SEGMENT_BYTES,
            queue_entries=QUEUE_FILE_ENTRIES,
            index_slots=INDEX_SLOTS,
            index_items=INDEX_ITEMS,
        )
    )
    store.open()
    return store


@pytest.mark.parametrize("capture", CAPTURES)
def test_an_opened_store_holds_what_apache_held(capture: str, tmp_path: Path) -> None:
    store = open_capture(capture, tmp_path)
    expected = facts(capture)
    assert_holds(StoreFacts.of_store(store).messages, expected.messages)
    assert_answers(store, expected)
    store.close()


@pytest.mark.parametrize("capture", CAPTURES)
def test_opening_and_closing_a_store_changes_no_log_or_queue(capture: str, tmp_path: Path) -> None:
    open_capture(capture, tmp_path).close()
    for folder in ("commitlog", "consumequeue"):
        for path, content in store_files(capture, folder):
            if any(content):  # a crash leaves a file behind that was made in advance
                assert (tmp_path / path).read_bytes() == content, path


@pytest.mark.parametrize("capture", ["clean", "ipv6"])
def test_opening_and_closing_a_clean_store_changes_no_index(capture: str, tmp_path: Path) -> None:
    open_capture(capture, tmp_path).close()
    for path, content in store_files(capture, "index"):
        assert (tmp_path / path).read_bytes() == content, path
