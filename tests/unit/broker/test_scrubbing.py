"""A running broker reads its log in the background, slowly, and tells of damage."""

import asyncio
import itertools
from dataclasses import replace
from pathlib import Path

import pytest
from unit.broker.one_broker import OneBroker, pass_time, small_files

from downrange.broker import scrubbing
from downrange.broker.scrubbing import FIRST_SLICE_S
from downrange.monitoring.broker_metrics import collect_broker
from downrange.monitoring.consumer_lag import StoreTimes
from downrange.monitoring.exposition import Exposition
from downrange.protocol.bodies.json_body import decode_body
from downrange.protocol.bodies.topics import KvTable
from downrange.protocol.request_codes import RequestCode
from downrange.runtime.disk import Disk
from downrange.runtime.slices import at_once
from downrange.store.scrub_slice import ScrubSlice
from downrange.testing.virtual_time import run


def flip(root: Path) -> None:
    """Damage the body of the first message."""
    (path,) = root.rglob("commitlog/*")
    with path.open("r+b") as file:
        file.seek(84 + 4)
        file.write(b"\xff")


async def runtime_info(broker: OneBroker) -> dict[str, str]:
    answer = await broker.call(RequestCode.GET_BROKER_RUNTIME_INFO)
    return decode_body(KvTable, answer.body or b"").table


def test_damage_is_logged_once_counted_and_told_to_administrators(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(scrubbing, "PAUSE_S", 60.0)

    async def main() -> None:
        async with OneBroker(tmp_path) as broker:
            for _ in range(3):
                await broker.send("T")
            await pass_time(2)
            assert "storeDamage" not in await runtime_info(broker)
            flip(tmp_path)
            await pass_time(FIRST_SLICE_S + 70)
            text = (await runtime_info(broker))["storeDamage"]
            assert text.startswith("the scrubber found 1 damaged places, first: ")
            view = broker.broker.view()
            assert view is not None
            page = Exposition()
            for _ in collect_broker(page, view, StoreTimes(), Disk(), 0):
                pass
            lines = bytes(at_once(page.rendered())).decode().splitlines()
            values = {line.split("{")[0]: line.split()[-1] for line in lines if "scrub" in line}
            assert values["downrange_scrub_damages"] == "1"
            assert values["downrange_scrub_records_total"] == "4"  # 2 in each of two passes
            assert values["downrange_scrub_passes_total"] == "2"

    run(main())
    told = [record for record in caplog.records if record.message.startswith("scrubber: damaged")]
    assert len(told) == 1


def slices_of(monkeypatch: pytest.MonkeyPatch) -> list[tuple[float, int]]:
    """When slices ran, and how many bytes each had."""
    ran: list[tuple[float, int]] = []
    run_slice = ScrubSlice.run

    def noted(part: ScrubSlice) -> None:
        ran.append((asyncio.get_running_loop().time(), part.end - part.start))
        run_slice(part)

    monkeypatch.setattr(ScrubSlice, "run", noted)
    return ran


def test_it_reads_no_more_than_the_setting_says(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ran = slices_of(monkeypatch)

    async def main() -> None:
        files = replace(small_files(tmp_path), scrub_bytes_per_s=1_000)
        async with OneBroker(tmp_path, store_files=files) as broker:
            for _ in range(50):
                await broker.send("T", b"x" * 10_000)
            await pass_time(FIRST_SLICE_S + 400)

    run(main())
    assert len(ran) > 2
    for (time_s, size), (next_s, _) in itertools.pairwise(ran):
        assert next_s - time_s >= size / 1_000


def test_it_can_be_switched_off(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ran = slices_of(monkeypatch)

    async def main() -> None:
        files = replace(small_files(tmp_path), scrub_bytes_per_s=0)
        async with OneBroker(tmp_path, store_files=files) as broker:
            await broker.send("T")
            await pass_time(FIRST_SLICE_S + 60)

    run(main())
    assert ran == []


def test_it_leaves_the_disk_to_senders_that_wait(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ran = slices_of(monkeypatch)

    async def main() -> None:
        async with OneBroker(tmp_path) as broker:
            await broker.send("T")
            view = broker.broker.view()
            assert view is not None
            monkeypatch.setattr(type(view.store), "waiting_count", 1)
            await pass_time(FIRST_SLICE_S + 30)
            assert ran == []
            monkeypatch.setattr(type(view.store), "waiting_count", 0)
            await pass_time(2)
            assert len(ran) == 1

    run(main())
