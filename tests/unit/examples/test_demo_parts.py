"""The parts of the demonstration that need no Spark."""

import json
import random
import xml.etree.ElementTree as ET
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from examples.demo.chart import draw
from examples.demo.machine import MissingError, find_java
from examples.demo.orders import BROKEN_EVERY, HOURS, LATE_S_MAX, REGIONS, make_events
from examples.demo.results import Revenue

NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)


def fake_java(folder: Path, says: str) -> str:
    java = folder / "java"
    java.write_text(f"#!/bin/sh\necho '{says}' >&2\n")
    java.chmod(0o755)
    return str(java)


def test_events_are_the_same_for_the_same_seed_and_fill_every_hour() -> None:
    first = list(make_events(5000, NOON, random.Random(3)))
    assert first == list(make_events(5000, NOON, random.Random(3)))
    assert len(first) == 5000
    assert {event.region for event in first} == set(REGIONS)
    hours = {event.hour for event in first if event.hour is not None}
    assert hours == {NOON + timedelta(hours=hour) for hour in range(HOURS)}


def test_events_say_in_their_body_what_they_are_counted_for() -> None:
    latest = NOON
    for event in make_events(4000, NOON, random.Random(5)):
        if event.hour is None:
            continue
        order = json.loads(event.body)
        at = datetime.fromisoformat(order["at"])
        assert event.hour <= at < event.hour + timedelta(hours=1)
        assert at > latest - timedelta(seconds=LATE_S_MAX + 60)
        assert (order["cents"] * order["quantity"], order["region"]) == (event.cents, event.region)
        latest = max(latest, at)


def test_a_few_bodies_are_broken() -> None:
    events = list(make_events(6 * BROKEN_EVERY, NOON, random.Random(7)))
    broken = [event.body for event in events if event.hour is None]
    assert len(broken) == 6
    for body in broken:
        try:
            assert isinstance(json.loads(body)["cents"], str)
        except json.JSONDecodeError:
            continue


def test_the_chart_is_xml_with_a_bar_for_each_row() -> None:
    rows = [Revenue(NOON + timedelta(hours=h), r, 1, 1, 100 * h) for h in range(4) for r in "ab"]
    tree = ET.fromstring(draw(rows, "a < b"))
    rects = tree.findall("{http://www.w3.org/2000/svg}rect")
    assert len(rects) == 1 + 2 + len(rows)  # the paper, the legend, the bars
    assert "a < b" in [text.text for text in tree.iter("{http://www.w3.org/2000/svg}text")]


def test_no_java_is_told_with_the_command_that_installs_it() -> None:
    def which(name: str) -> str | None:
        return "/usr/bin/apt-get" if name == "apt-get" else None

    with pytest.raises(MissingError, match="apt-get install -y openjdk-17"):
        find_java({}, which)
    with pytest.raises(MissingError, match=r"adoptium\.net"):
        find_java({}, lambda _: None)


@pytest.mark.parametrize(
    ("says", "version"), [('openjdk version "17.0.15"', 17), ('java version "21" 2023', 21)]
)
def test_a_java_that_will_do_is_found(tmp_path: Path, says: str, version: int) -> None:
    java = fake_java(tmp_path, says)
    assert find_java({}, lambda _: java) == version


def test_an_old_or_broken_java_is_told_with_its_path(tmp_path: Path) -> None:
    java = fake_java(tmp_path, 'java version "1.8.0_392"')
    with pytest.raises(MissingError, match=r"java is 8\."):
        find_java({}, lambda _: java)
    mute = fake_java(tmp_path, "what?")
    with pytest.raises(MissingError, match="does not say its version"):
        find_java({}, lambda _: mute)
    with pytest.raises(MissingError, match="unset JAVA_HOME"):
        find_java({"JAVA_HOME": str(tmp_path / "nowhere")}, lambda _: None)
