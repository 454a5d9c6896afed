"""Checksums over whole records, exchanged with a RocketMQ broker that writes and checks them."""

from collections import Counter
from dataclasses import replace
from pathlib import Path

import pytest
from interop import apache, exchange_plan, message_lines
from interop.message_lines import StoreFacts
from interop.store_writer import StoreWriter
from interop.test_store_exchange import ApacheBroker

from downrange.protocol.record_crc import check_record_crc
from downrange.store.message_store import MessageStore
from downrange.store.scanner import LogScanner
from downrange.store.settings import StoreSettings
from downrange.store.verify import verify_stopped

pytestmark = pytest.mark.interop

SEED = 20_261_118
MESSAGES = 1_000


@pytest.fixture(autouse=True)
def checking_apache(monkeypatch: pytest.MonkeyPatch) -> None:
    switches = {"enabledAppendPropCRC": "true", "forceVerifyPropCRC": "true"}
    monkeypatch.setattr(exchange_plan, "APACHE_SETTINGS", exchange_plan.APACHE_SETTINGS | switches)


def settings_of(root: Path) -> StoreSettings:
    return replace(exchange_plan.downrange_settings(root), append_record_crc=True)


def checksums_of(store: MessageStore) -> Counter[bool | None]:
    """How many records have a right, a wrong and no checksum."""
    found: Counter[bool | None] = Counter()
    scanner = LogScanner(store.log, lambda *_: None)
    for scanned in scanner.scan(store.log.min_offset, store.log.max_offset):
        view = store.log.view(scanned[0], scanned[1])
        assert view is not None
        found[check_record_crc(view)] += 1
    return found


def test_downrange_checks_what_apache_wrote(tmp_path: Path) -> None:
    root = tmp_path / "store"
    apache.allow_long_retry_topic(root)
    with ApacheBroker(tmp_path, root) as broker:
        broker.produce(MESSAGES, SEED, transactions=10)
        broker.end("clean")
    assert verify_stopped(settings_of(root)).damages == ()
    store = MessageStore(settings_of(root))
    assert store.open().damages == []
    found = checksums_of(store)
    store.close()
    assert found[True] >= MESSAGES
    assert found == {True: found[True]}


def test_apache_recovers_what_downrange_wrote_with_every_checksum(tmp_path: Path) -> None:
    root = tmp_path / "store"
    exchange_plan.save_tables(root)
    store = MessageStore(settings_of(root))
    store.open()
    path = tmp_path / "written.jsonl"
    with path.open("wb") as lines:
        writer = StoreWriter(store, lines, SEED)
        while writer.count < MESSAGES:
            writer.step()
    assert checksums_of(store) == {True: writer.count}
    store.abandon()  # so that Apache has to read it all
    written = StoreFacts.of_lines(apache.printed_lines(path)).messages
    with ApacheBroker(tmp_path, root) as broker:
        dumped = broker.dump()
    assert len(written) >= MESSAGES
    message_lines.assert_holds(dumped.messages, written)
