"""Stops at awkward points, one by one: between two writes, in retention, in recovery itself."""

import errno
import random
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from faults.stores import (
    Sender,
    Sent,
    Template,
    abandon,
    check_all,
    check_served,
    open_store,
    reopen,
    sync_settings,
    take_template,
    the_seed,
    tiny_settings,
    trial,
)

from downrange.protocol.record import BLANK, MAGIC_BLANK
from downrange.store.consume_queue import ENTRY_BYTES
from downrange.store.errors import AppendRefusedError, PutStatus, StoreUnavailableError
from downrange.store.index_file import HEADER
from downrange.store.message_store import MessageStore
from downrange.store.segment import segment_name
from downrange.store.settings import RetentionSettings
from downrange.testing.clock import ManualClock
from downrange.testing.faulty_disk import FaultyDisk

# Whatever a store does with files, but for what has no side that can fail.
OPERATIONS = (
    *("read", "write", "rename", "exists", "size", "unlink", "usage", "lock", "sync", "map"),
    *("make_directory", "list_directory", "fsync_directory", "data_extents"),
    *("open_file", "truncate", "allocate"),
)


def crashed(root: Path, count: int = 45) -> Template:
    settings = tiny_settings(root)
    store = open_store(settings)
    sender = Sender(store, random.Random(f"{the_seed()} crashed"), body_max=200)
    sender.send(count)
    abandon(store)
    template = take_template(settings, sender.sent)
    shutil.rmtree(root)
    return template


def check_goes_on(scratch: Path, template: Template, changed: dict[str, bytes | None]) -> None:
    """The store opens with everything in it, takes more, and opens again with that too."""
    settings = template.lay_out(scratch, changed)
    store, report = reopen(settings)
    assert report.damages == []
    check_all(store, list(template.sent))
    fresh = Sender(store, random.Random(2), body_max=300).send(30)
    abandon(store)
    store, report = reopen(settings)
    assert report.damages == []
    check_all(store, [*template.sent, *fresh])
    store.close()
    shutil.rmtree(scratch)


def test_a_new_segment_without_the_blank_record_before_it_is_dropped(scratch: Path) -> None:
    with trial("test_a_new_segment_without_the_blank_record_before_it_is_dropped"):
        template = crashed(scratch / "made")
        size = template.settings.segment_bytes
        new = "commitlog/" + segment_name(len(template.names("commitlog/")) * size)
        for data in (b"", bytes(100), bytes(size)):
            check_goes_on(scratch / "store", template, {new: data})


def test_a_blank_record_with_an_empty_segment_behind_it_costs_nothing(scratch: Path) -> None:
    with trial("test_a_blank_record_with_an_empty_segment_behind_it_costs_nothing"):
        template = crashed(scratch / "made")
        size = template.settings.segment_bytes
        last = template.names("commitlog/")[-1]
        new = "commitlog/" + segment_name(int(Path(last).name) + size)
        end = template.sent[-1].physical_offset + template.sent[-1].size - int(Path(last).name)
        data = bytearray(template.files[last])
        BLANK.pack_into(data, end, size - end, MAGIC_BLANK)
        check_goes_on(scratch / "store", template, {last: bytes(data), new: bytes(size)})
        check_goes_on(scratch / "store", template, {last: bytes(data)})


def test_a_record_without_its_head_is_the_end_of_the_log(scratch: Path) -> None:
    """The head is written last, so that is what a kill in the middle of an append leaves."""
    with trial("test_a_record_without_its_head_is_the_end_of_the_log"):
        template = crashed(scratch / "made")
        last = template.names("commitlog/")[-1]
        end = template.sent[-1].physical_offset + template.sent[-1].size - int(Path(last).name)
        for length in (1, 50, 200):
            data = bytearray(template.files[last])
            data[end + 88 : end + 88 + length] = bytes(range(1, length + 1))
            del data[template.settings.segment_bytes :]
            check_goes_on(scratch / "store", template, {last: bytes(data)})


def test_a_queue_file_that_was_just_made_or_half_an_entry_costs_nothing(scratch: Path) -> None:
    with trial("test_a_queue_file_that_was_just_made_or_half_an_entry_costs_nothing") as rng:
        template = crashed(scratch / "made")
        last = [message for message in template.sent if message.queued][-1]
        for queue in (f"{last.topic}/{last.queue_id}", "audit/0"):
            names = template.names(f"consumequeue/{queue}/")
            size = len(template.files[names[-1]])
            new = f"consumequeue/{queue}/{segment_name(len(names) * size)}"
            for fresh in (b"", bytes(size)):
                rng.case = f"{new} of {len(fresh)} bytes"
                check_goes_on(scratch / "store", template, {new: fresh})
        # Messages are dispatched one by one, so only the newest can have half an entry.
        name = template.names(f"consumequeue/{last.topic}/{last.queue_id}/")[-1]
        data = template.files[name]
        end = (last.queue_offset + 1) * ENTRY_BYTES % len(data) or len(data)
        for lost in range(1, ENTRY_BYTES + 1):
            rng.case = f"{name} without the last {lost} bytes of its last entry"
            half = data[: end - lost].ljust(len(data), b"\0")
            check_goes_on(scratch / "store", template, {name: half})


def test_an_index_header_that_runs_ahead_of_its_slot_costs_nothing(scratch: Path) -> None:
    with trial("test_an_index_header_that_runs_ahead_of_its_slot_costs_nothing"):
        template = crashed(scratch / "made")
        name = template.names("index/")[-1]
        header = HEADER.unpack_from(template.files[name])
        count = header[5]
        assert count > 2
        data = bytearray(template.files[name])
        for slot in range(template.settings.index_slots):
            position = HEADER.size + slot * 4
            if int.from_bytes(data[position : position + 4], "big") == count - 1:
                item = HEADER.size + template.settings.index_slots * 4 + (count - 1) * 20
                data[position : position + 4] = data[item + 16 : item + 20]
        assert bytes(data) != template.files[name]
        check_goes_on(scratch / "store", template, {name: bytes(data)})


def drop_settings(root: Path) -> tuple[MessageStore, FaultyDisk, Sender]:
    disk = FaultyDisk()
    settings = replace(tiny_settings(root), retention=RetentionSettings(file_reserved_hours=0))
    store = MessageStore(settings, disk, ManualClock(4_000_000_000_000))
    store.open()
    sender = Sender(store, random.Random(f"{the_seed()} retention"), body_max=200)
    sender.send(80)
    return store, disk, sender


@pytest.mark.parametrize("step", range(1, 13))
def test_a_stop_in_the_middle_of_retention_leaves_what_is_younger(scratch: Path, step: int) -> None:
    with trial("test_a_stop_in_the_middle_of_retention_leaves_what_is_younger"):
        store, disk, sender = drop_settings(scratch)
        disk.fail("unlink", errno.EIO, at_call=step)
        store.retention.request_now()
        try:
            store.expire_some()
        except OSError:
            assert disk.calls["unlink"] >= step
        check_served(store, kept(store, sender))
        abandon(store)
        disk.heal()
        store, report = reopen(store.settings)
        assert report.damages == []
        check_all(store, kept(store, sender))
        fresh = Sender(store, random.Random(3), body_max=200).send(10)
        store.close()
        store, _ = reopen(store.settings)
        check_all(store, kept(store, sender) + fresh)
        store.close()


def kept(store: MessageStore, sender: Sender) -> list[Sent]:
    return [m for m in sender.sent if m.physical_offset >= store.log.min_offset]


def fails_somewhere(
    calls: Callable[[FaultyDisk], object], operation: str, rng: random.Random, tries: int
) -> list[int]:
    """Some of the calls of an operation that a piece of work makes, by number."""
    disk = FaultyDisk()
    calls(disk)
    count = disk.calls[operation]
    return sorted(rng.sample(range(1, count + 1), min(count, tries)))


@pytest.mark.parametrize("operation", OPERATIONS)
def test_an_open_that_fails_half_way_spoils_nothing_for_the_next(
    scratch: Path, operation: str
) -> None:
    with trial("test_an_open_that_fails_half_way_spoils_nothing_for_the_next") as rng:
        template = crashed(scratch / "made")
        gone: dict[str, bytes | None] = dict.fromkeys(
            [*template.names("consumequeue/orders/"), *template.names("index/")]
        )

        def open_once(disk: FaultyDisk) -> MessageStore:
            return open_store(template.lay_out(scratch / "counted", gone), disk)

        def count_calls(disk: FaultyDisk) -> None:
            open_once(disk).close()
            shutil.rmtree(scratch / "counted")

        for at_call in fails_somewhere(count_calls, operation, rng, 6):
            rng.case = f"call {at_call} of {operation}"
            settings = template.lay_out(scratch / "store", gone)
            disk = FaultyDisk()
            disk.fail(operation, errno.EIO, at_call=at_call, times=1)
            try:
                abandon(open_store(settings, disk))
            except StoreUnavailableError as error:
                rng.case += f", {error}"
            assert disk.open_paths == []
            store, _ = reopen(settings)
            check_all(store, list(template.sent))
            store.close()
            shutil.rmtree(settings.root)


@pytest.mark.parametrize("operation", OPERATIONS)
def test_whatever_call_fails_while_messages_are_taken_no_acknowledged_one_is_lost(
    scratch: Path, operation: str
) -> None:
    name = "test_whatever_call_fails_while_messages_are_taken_no_acknowledged_one_is_lost"
    with trial(name) as rng:
        for at_call in fails_somewhere(lambda d: work(scratch / "a", d), operation, rng, 4):
            rng.case = f"call {at_call} of {operation}"
            shutil.rmtree(scratch / "a", ignore_errors=True)
            disk = FaultyDisk()
            disk.fail(operation, errno.EIO, at_call=at_call, times=2)
            acknowledged = work(scratch / "a", disk)
            disk.heal()
            assert disk.open_paths == []
            store, _ = reopen(sync_settings(scratch / "a"), disk)
            served = check_served(store, [])
            bodies = {body for body, _, _ in served.messages.values()}
            assert acknowledged <= bodies, f"lost: {sorted(acknowledged - bodies)[:3]}"
            store.close()


def work(root: Path, disk: FaultyDisk) -> set[bytes]:
    """Open, append, sync, dispatch, close; returns the bodies that were acknowledged."""
    store = MessageStore(sync_settings(root), disk, ManualClock())
    acknowledged: set[bytes] = set()
    try:
        store.open()
    except StoreUnavailableError:
        return acknowledged

    def release(body: bytes) -> Callable[[PutStatus], None]:
        return lambda status: acknowledged.add(body) if status is PutStatus.PUT_OK else None

    for number in range(120):
        body = number.to_bytes(4, "big") * 300
        try:
            put = store.append("orders", number % 2, body, b"UNIQ_KEY\x01U%d" % number)
        except AppendRefusedError:
            continue
        store.wait_durable(put.end_offset, release(body))
        if number % 5 == 4:
            store.flush_now()
            store.dispatch_some()
        if number % 40 == 39:
            job = store.begin_derived_flush()
            try:
                job.run()
            except OSError as error:
                store.finish_derived_flush(job, error)
            else:
                store.finish_derived_flush(job)
    store.close()
    return acknowledged
