"""One bit flipped in a file of the store: only what it hit may suffer, and it is reported."""

import random
import shutil
from collections.abc import Iterable
from pathlib import Path

import pytest
from faults.stores import (
    Sender,
    Sent,
    Template,
    Trial,
    abandon,
    check_all,
    check_entries,
    check_keys,
    check_served,
    is_hole,
    lose_power,
    open_store,
    reopen,
    take_template,
    the_seed,
    tiny_settings,
    trial,
)

from downrange.store.message_store import MessageStore
from downrange.store.recovery import RecoveryReport
from downrange.store.segment import segment_name

STOPS = ("clean", "crash")
# Fields that the record's own consistency protects: total size, magic, CRC, physical offset.
PROTECTED_HEAD = (*range(12), *range(28, 36))


def make_template(root: Path, stop: str) -> Template:
    """Six log files and more; after "clean" recovery reads the newest, after "crash" all."""
    settings = tiny_settings(root)
    store = open_store(settings)
    sender = Sender(store, random.Random(f"{the_seed()} {stop}"), body_max=200)
    sender.send(45)
    if stop == "clean":
        store.close()
    else:
        lose_power(store)
    template = take_template(settings, sender.sent)
    shutil.rmtree(root)
    return template


def flipped(template: Template, name: str, bit: int) -> dict[str, bytes | None]:
    data = bytearray(template.files[name])
    data[bit // 8] ^= 1 << bit % 8
    return {name: bytes(data)}


def hit_by(template: Template, name: str, bit: int) -> Sent | None:
    """The message whose record a bit of a log file belongs to."""
    offset = int(Path(name).name) + bit // 8
    for message in template.sent:
        if message.physical_offset <= offset < message.physical_offset + message.size:
            return message
    return None


def check_log_flip(scratch: Path, template: Template, name: str, bit: int) -> None:
    settings = template.lay_out(scratch, flipped(template, name, bit))
    hit = hit_by(template, name, bit)
    store, report = reopen(settings)
    sent = list(template.sent)
    if hit is None:
        check_all(store, sent)
    else:
        check_hit(store, report, sent, hit, int(Path(name).name) + bit // 8)
    abandon(store)


def check_hit(
    store: MessageStore, report: RecoveryReport, sent: list[Sent], hit: Sent, offset: int
) -> None:
    """What must hold after a flip at this physical offset, in the record of `hit`."""
    served = check_served(store, sent, but=[hit])
    is_last = hit == sent[-1]
    check_entries(store, sent, but=[hit])
    check_keys(store, sent, but=[hit])
    known = {(m.place, m.content) for m in sent if m.queued and m != hit}
    strangers = [got for got in served.messages.items() if got not in known]
    assert [body for _, (body, _, _) in strangers] in ([], [hit.body])
    at = offset - hit.physical_offset
    in_body, is_protected = protection(hit, at)
    if in_body:
        assert strangers == [], "a damaged body was passed on as good"
    if hit.physical_offset < report.start_offset:
        return  # recovery had no reason to look; the client finds it, or verification
    position = hit.physical_offset % store.settings.segment_bytes
    path = store.settings.commit_log_path / segment_name(hit.physical_offset - position)
    found = [(damage.path, damage.position) for damage in report.damages]
    expected = [(path, position)]
    if is_protected and (hit.queued or not is_last):
        assert found == expected
        assert is_last or not hit.queued or is_hole(store, hit)
    else:
        assert found in ([], expected)


def protection(hit: Sent, at: int) -> tuple[bool, bool]:
    """Whether a byte of a record is in its body, and whether the format protects it."""
    text_bytes = len(hit.properties) + 2 + len(hit.topic)
    length_bytes = 1 if len(hit.topic) <= 127 else 2
    body_end = hit.size - text_bytes - length_bytes
    body_start = body_end - len(hit.body)
    lengths = {*range(body_start - 4, body_start), *range(body_end, body_end + length_bytes)}
    lengths |= {hit.size - len(hit.properties) - 2, hit.size - len(hit.properties) - 1}
    in_body = body_start <= at < body_end
    has_crc = bool(hit.body) or at not in range(8, 12)
    return in_body, in_body or at in lengths or (at in PROTECTED_HEAD and has_crc)


def bits_of(template: Template, kind: str) -> list[tuple[str, int]]:
    """All bits of all files of a kind, but for the zeros at the end of the checkpoint."""
    length_max = 64 if kind == "checkpoint" else 1 << 20
    return [
        (name, bit)
        for name in template.names(kind)
        for bit in range(min(len(template.files[name]), length_max) * 8)
    ]


def log_fields(template: Template, rng: random.Random) -> Iterable[tuple[str, int]]:
    """A bit of each byte outside the body, in a few records of all kinds."""
    size = template.settings.segment_bytes
    for message in [*rng.sample(template.sent, 2), template.sent[-1]]:
        name = template.names("commitlog/")[message.physical_offset // size]
        for at in range(message.size):
            if not protection(message, at)[0]:
                yield name, (message.physical_offset % size + at) * 8 + rng.randrange(8)


def run_log_flips(
    scratch: Path, template: Template, cases: Iterable[tuple[str, int]], t: Trial
) -> None:
    for name, bit in cases:
        t.case = f"bit {bit} of {name}"
        check_log_flip(scratch / "store", template, name, bit)
        shutil.rmtree(scratch / "store")


@pytest.mark.parametrize("stop", STOPS)
def test_a_flipped_bit_in_the_log_costs_at_most_its_own_record(scratch: Path, stop: str) -> None:
    with trial("test_a_flipped_bit_in_the_log_costs_at_most_its_own_record") as rng:
        template = make_template(scratch / "made", stop)
        assert {m.queued for m in template.sent} == {True, False}
        cases = rng.sample(bits_of(template, "commitlog/"), 120)
        run_log_flips(scratch, template, cases, rng)
        run_log_flips(scratch, template, log_fields(template, rng), rng)


@pytest.mark.long
@pytest.mark.parametrize("stop", STOPS)
def test_a_flipped_bit_in_any_byte_of_the_log_costs_at_most_its_own_record(
    scratch: Path, stop: str
) -> None:
    with trial("test_a_flipped_bit_in_any_byte_of_the_log_costs_at_most_its_own_record") as rng:
        template = make_template(scratch / "made", stop)
        one_of_each_byte = [
            (name, at * 8 + rng.randrange(8))
            for name in template.names("commitlog/")
            for at in range(len(template.files[name]))
        ]
        run_log_flips(scratch, template, one_of_each_byte, rng)


def check_queue_flip(scratch: Path, template: Template, name: str, bit: int) -> None:
    """Messages are all served; entries are right at once, or, where recovery had not to look,
    once they were read, but for the tag code, which only the whole log can tell."""
    settings = template.lay_out(scratch, flipped(template, name, bit))
    store, report = reopen(settings)
    sent = list(template.sent)
    looked_at = [m for m in sent if m.physical_offset >= report.start_offset]
    not_looked_at = [m for m in sent if m.physical_offset < report.start_offset]
    check_entries(store, sent, but=not_looked_at)
    check_served(store, sent)
    for message in sent:
        if message.queued:
            queue = store.queues.get(message.topic, message.queue_id)
            assert queue is not None
            entry = queue.entry(message.queue_offset)
            assert entry[:2] == (message.physical_offset, message.size)
    check_keys(store, sent)
    assert looked_at
    abandon(store)


def run_flips(
    scratch: Path, template: Template, cases: Iterable[tuple[str, int]], rng: Trial, kind: str
) -> None:
    for name, bit in cases:
        rng.case = f"bit {bit} of {name}"
        root = scratch / "store"
        if kind == "consumequeue/":
            check_queue_flip(root, template, name, bit)
        else:
            settings = template.lay_out(root, flipped(template, name, bit))
            store, report = reopen(settings)
            assert report.damages == []
            check_all(store, list(template.sent))
            abandon(store)
        shutil.rmtree(root)


DERIVED = {
    "clean": ("consumequeue/", "index/", "checkpoint", "derived.json", "lock"),
    "crash": ("consumequeue/", "abort", "lock"),
}
KINDS = [(stop, kind) for stop, kinds in DERIVED.items() for kind in kinds]


@pytest.mark.parametrize(("stop", "kind"), KINDS)
def test_a_flipped_bit_in_a_derived_file_costs_nothing(scratch: Path, stop: str, kind: str) -> None:
    with trial("test_a_flipped_bit_in_a_derived_file_costs_nothing") as rng:
        template = make_template(scratch / "made", stop)
        bits = bits_of(template, kind)
        cases = bits if len(bits) <= 150 else rng.sample(bits, 150)
        run_flips(scratch, template, cases, rng, kind)


@pytest.mark.long
@pytest.mark.parametrize(("stop", "kind"), KINDS)
def test_any_flipped_bit_in_a_derived_file_costs_nothing(
    scratch: Path, stop: str, kind: str
) -> None:
    with trial("test_any_flipped_bit_in_a_derived_file_costs_nothing") as rng:
        template = make_template(scratch / "made", stop)
        run_flips(scratch, template, bits_of(template, kind), rng, kind)
