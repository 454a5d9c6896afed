"""Files that the log can rebuild, deleted or cut short: at the next start they are whole again."""

import random
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from faults.stores import (
    Sender,
    Template,
    check_all,
    lose_power,
    open_store,
    reopen,
    take_template,
    the_seed,
    tiny_settings,
    trial,
)

from downrange.store.verify import verify_stopped

KINDS = ("consumequeue/", "index/", "checkpoint", "derived.json", "lock", "abort")


def make_template(root: Path, stop: str) -> Template:
    """Queues and index of several files; closed once, so that all derived files are there."""
    settings = tiny_settings(root)
    store = open_store(settings)
    rng = random.Random(f"{the_seed()} derived")
    sender = Sender(store, rng, body_max=150)
    sender.send(40)
    store.close()
    store = open_store(settings)
    again = Sender(store, rng, body_max=150)
    again.send(40)
    if stop == "clean":
        store.close()
    else:
        lose_power(store)
    template = take_template(settings, sender.sent + again.sent)
    shutil.rmtree(root)
    return template


def lengths(size: int) -> list[int]:
    """Where a file is cut: at its start, in its head, in the middle, before its last byte."""
    return sorted({0, 1, 20, size // 2, size - 1} & set(range(size)))


def damages(template: Template) -> Iterator[tuple[str, dict[str, bytes | None]]]:
    """Each derived file deleted, and cut to several lengths; each directory deleted."""
    names = [name for kind in KINDS for name in template.names(kind)]
    known = template.files["derived.json"].decode()
    for name in names:
        # A crash, and then the loss of an index file that no clean stop has seen, are two faults.
        if name.startswith("index/") and Path(name).name not in known:
            continue
        yield f"{name} deleted", {name: None}
        data = template.files[name]
        for length in lengths(len(data)):
            yield f"{name} cut to {length} bytes", {name: data[:length]}
    for directory in sorted({str(Path(name).parent) for name in names} | {"consumequeue"}):
        gone = {name: None for name in names if name.startswith(directory + "/")}
        if directory != ".":
            yield f"{directory} deleted", dict(gone)


def check_rebuilt(root: Path, template: Template, changed: dict[str, bytes | None]) -> None:
    settings = template.lay_out(root, changed)
    store, report = reopen(settings)
    assert report.damages == []
    check_all(store, list(template.sent))
    sender = Sender(store, random.Random(1), body_max=100)
    fresh = sender.send(5)
    store.close()
    found = verify_stopped(settings)
    assert found.damages == ()
    store, report = reopen(settings)
    check_all(store, [*template.sent, *fresh])
    store.close()


@pytest.mark.parametrize("stop", ["clean", "crash"])
def test_a_derived_file_that_is_deleted_or_cut_is_rebuilt(scratch: Path, stop: str) -> None:
    with trial("test_a_derived_file_that_is_deleted_or_cut_is_rebuilt") as rng:
        template = make_template(scratch / "made", stop)
        assert len(template.names("consumequeue/orders/0/")) > 1
        cases = list(damages(template))
        for case, changed in rng.sample(cases, min(len(cases), 60)):
            rng.case = case
            check_rebuilt(scratch / "store", template, changed)
            shutil.rmtree(scratch / "store")


@pytest.mark.long
@pytest.mark.parametrize("stop", ["clean", "crash"])
def test_any_derived_file_that_is_deleted_or_cut_is_rebuilt(scratch: Path, stop: str) -> None:
    with trial("test_any_derived_file_that_is_deleted_or_cut_is_rebuilt") as rng:
        template = make_template(scratch / "made", stop)
        for case, changed in damages(template):
            rng.case = case
            check_rebuilt(scratch / "store", template, changed)
            shutil.rmtree(scratch / "store")


def test_all_derived_files_together_are_rebuilt_from_the_log_alone(scratch: Path) -> None:
    with trial("test_all_derived_files_together_are_rebuilt_from_the_log_alone"):
        template = make_template(scratch / "made", "clean")
        gone: dict[str, bytes | None] = {
            name: None for name in template.files if not name.startswith("commitlog/")
        }
        check_rebuilt(scratch / "store", template, gone)


def test_a_leftover_of_a_replaced_small_file_is_no_harm(scratch: Path) -> None:
    with trial("test_a_leftover_of_a_replaced_small_file_is_no_harm"):
        template = make_template(scratch / "made", "clean")
        left: dict[str, bytes | None] = {"checkpoint.new": b"half", "derived.json.new": b'{"disp'}
        check_rebuilt(scratch / "store", template, left)
