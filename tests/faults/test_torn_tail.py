"""The last bytes of the log cut off, zeroed or garbled: everything before them is served."""

import random
import shutil
from dataclasses import dataclass
from itertools import product
from pathlib import Path

import pytest
from faults.stores import (
    Sender,
    Sent,
    Template,
    abandon,
    check_all,
    check_entries,
    check_keys,
    check_served,
    open_store,
    reopen,
    small_settings,
    take_template,
    the_seed,
    tiny_settings,
    trial,
)

from downrange.store.message_store import MessageStore
from downrange.store.settings import StoreSettings

HOWS = ("cut", "zero", "garble")
STOPS = ("clean", "crash")
TORN_RECORDS = 3


@dataclass(frozen=True)
class Tail:
    """A template, and where the last records stand in its newest log file."""

    template: Template
    log_file: str
    base_offset: int
    start: int  # of the first record that is torn, within the file
    end: int


def make_tail(root: Path, settings: StoreSettings, stop: str, count: int) -> Tail:
    store = open_store(settings)
    sender = Sender(store, random.Random(f"{the_seed()} {stop}"), body_max=300)
    sender.send(count)
    while store.log.max_offset % settings.segment_bytes > settings.segment_bytes // 2:
        sender.send(1)  # the last records shall stand in one file
    last = sender.small("orders", 0) + sender.small("audit", 1) + sender.small("orders", 0)
    if stop == "clean":
        store.close()
    else:
        abandon(store)
    template = take_template(settings, sender.sent)
    shutil.rmtree(root)
    log_file = template.names("commitlog/")[-1]
    base_offset = int(Path(log_file).name)
    assert last[0].physical_offset >= base_offset, "the last records are in one file"
    end = last[-1].physical_offset + last[-1].size - base_offset
    return Tail(template, log_file, base_offset, last[0].physical_offset - base_offset, end)


def torn(tail: Tail, how: str, position: int, rng: random.Random) -> bytes:
    data = tail.template.files[tail.log_file]
    length = tail.end - position
    if how == "cut":
        return data[:position]
    if how == "zero":
        return data[:position] + bytes(len(data) - position)
    # Each byte becomes another one, so that the record is torn whatever stood there.
    garbage = bytes(byte ^ rng.randrange(1, 256) for byte in data[position : tail.end])
    return data[:position] + garbage + data[position + length :]


def text_start(message: Sent) -> int:
    """Where topic and properties begin: behind the body no checksum protects a record."""
    return message.physical_offset + message.size - len(message.properties) - len(message.topic) - 2


def check_survivors(
    store: MessageStore, tail: Tail, position: int
) -> tuple[list[Sent], list[Sent]]:
    """Everything before the tear is there, nothing of what it hit is.

    A record torn in its topic or properties may have come through, with other ones; it is the
    second thing that this returns.
    """
    tear_offset = tail.base_offset + position
    kept = [m for m in tail.template.sent if m.physical_offset + m.size <= tear_offset]
    hit = tail.template.sent[len(kept)]
    served = check_served(store, kept)
    check_keys(store, kept)
    more = [content for content in served.messages.values() if content[2] >= hit.physical_offset]
    assert served.refused == []
    if tear_offset < text_start(hit):
        assert more == []
        check_entries(store, kept)
    else:
        assert [(body, at) for body, _, at in more] in ([], [(hit.body, hit.physical_offset)])
    return kept, [hit] if more else []


def tear(
    root: Path, tail: Tail, how: str, position: int, rng: random.Random, *, goes_on: bool
) -> None:
    """Tear, open and compare; where it `goes_on`, append more and open again."""
    changed: dict[str, bytes | None] = {tail.log_file: torn(tail, how, position, rng)}
    settings = tail.template.lay_out(root, changed)
    store, report = reopen(settings)
    kept, changed_one = check_survivors(store, tail, position)
    assert report.end_offset <= tail.base_offset + tail.end
    if not goes_on:
        abandon(store)
        return
    sender = Sender(store, rng, body_max=300)
    fresh = sender.small("orders", 0) + sender.small("audit", 1, 2)
    store.close()
    store, report = reopen(settings)
    assert report.damages == []
    check_all(store, kept + changed_one + fresh, but=changed_one)
    store.close()


@pytest.mark.parametrize(("how", "stop"), list(product(HOWS, STOPS)))
def test_a_tail_torn_at_any_offset_of_the_last_records_costs_only_them(
    scratch: Path, how: str, stop: str
) -> None:
    with trial("test_a_tail_torn_at_any_offset_of_the_last_records_costs_only_them") as rng:
        tail = make_tail(scratch / "made", tiny_settings(scratch / "made"), stop, 6)
        for position in range(tail.start, tail.end):
            rng.case = f"{how} after {stop}, position {position} of {tail.log_file}"
            root = scratch / str(position)
            tear(root, tail, how, position, rng, goes_on=position % 4 == 0)
            shutil.rmtree(root)


@pytest.mark.long
@pytest.mark.parametrize(("how", "stop"), list(product(HOWS, STOPS)))
def test_a_tail_torn_anywhere_in_the_newest_file_costs_only_what_is_behind_the_tear(
    scratch: Path, how: str, stop: str
) -> None:
    name = "test_a_tail_torn_anywhere_in_the_newest_file_costs_only_what_is_behind_the_tear"
    with trial(name) as rng:
        tail = make_tail(scratch / "made", small_settings(scratch / "made"), stop, 500)
        for position in rng.sample(range(tail.end), min(tail.end, 3_000)):
            rng.case = f"{how} after {stop}, position {position} of {tail.log_file}"
            root = scratch / str(position)
            tear(root, tail, how, position, rng, goes_on=True)
            shutil.rmtree(root)


@pytest.mark.parametrize("stop", STOPS)
def test_garbage_behind_the_end_of_the_log_is_erased(scratch: Path, stop: str) -> None:
    with trial("test_garbage_behind_the_end_of_the_log_is_erased") as rng:
        tail = make_tail(scratch / "made", tiny_settings(scratch / "made"), stop, 6)
        data = bytearray(tail.template.files[tail.log_file])
        data[tail.end :] = rng.randbytes(len(data) - tail.end)
        settings = tail.template.lay_out(scratch / "store", {tail.log_file: bytes(data)})
        store, report = reopen(settings)
        check_all(store, list(tail.template.sent))
        assert report.torn_bytes == len(data) - tail.end
        segment = store.log.chain.segments[-1]
        assert not segment.map[tail.end :].strip(b"\0")
        store.close()


@pytest.mark.parametrize("stop", STOPS)
def test_a_stale_record_behind_the_end_does_not_come_back_to_life(scratch: Path, stop: str) -> None:
    """A record torn at its head, a whole one behind it: the walk goes on behind the damage."""
    with trial("test_a_stale_record_behind_the_end_does_not_come_back_to_life"):
        tail = make_tail(scratch / "made", tiny_settings(scratch / "made"), stop, 6)
        hit, *behind = tail.template.sent[-TORN_RECORDS:]
        data = bytearray(tail.template.files[tail.log_file])
        data[tail.start : tail.start + 8] = bytes(8)
        settings = tail.template.lay_out(scratch / "store", {tail.log_file: bytes(data)})
        store, report = reopen(settings)
        assert [damage.position for damage in report.damages] == [tail.start]
        check_all(store, [m for m in tail.template.sent if m != hit], but=[hit])
        assert behind
        store.close()
