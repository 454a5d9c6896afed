"""Settings: declared once, read from property files, frozen."""

from dataclasses import FrozenInstanceError, dataclass
from enum import Enum
from pathlib import Path

import pytest

from downrange.runtime.property_text import Property
from downrange.runtime.settings import (
    SettingFacts,
    SettingsError,
    SettingsSource,
    changed,
    facts_of,
    properties_of,
    setting,
)


class Mode(Enum):
    SLOW = "SLOW_MODE"
    FAST = "FAST_MODE"


@dataclass(frozen=True, slots=True, kw_only=True)
class DoorSettings:
    port: int = setting("listenPort", 9876, least=0, most=65_535, about="where to listen")
    name: str = setting("doorName", "front", about="its name")
    is_open: bool = setting("doorOpen", default=True, about="whether to let anybody in")
    ratio: float = setting("doorRatio", 0.75, least=0, most=1, about="how far")
    count: int = setting("doorCount", -1, about="any number")
    least: int = setting("doorLeast", 1, least=1, about="a lower bound")
    most: float = setting("doorMost", 1.5, most=2, about="an upper bound")
    path: Path = setting("doorPath", Path("door"), about="where it stands")
    mode: Mode = setting("doorMode", Mode.SLOW, about="how")
    untold: int = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class WindowSettings:
    panes: int = setting("windowPanes", 4, least=1, about="how many")


def file(folder: Path, text: str) -> Path:
    path = folder / "broker.conf"
    path.write_text(text)
    return path


def test_nothing_given_is_the_defaults() -> None:
    assert SettingsSource().read(DoorSettings) == DoorSettings()


def test_a_file_gives_each_field_its_type(tmp_path: Path) -> None:
    path = file(
        tmp_path,
        "listenPort = 1\ndoorName=a b\ndoorOpen=FALSE \ndoorRatio=1e-1\ndoorCount=-7\n"
        "doorPath=/var/door\ndoorMode=FAST_MODE\n",
    )
    assert SettingsSource.from_file(path).read(DoorSettings) == DoorSettings(
        port=1,
        name="a b",
        is_open=False,
        ratio=0.1,
        count=-7,
        path=Path("/var/door"),
        mode=Mode.FAST,
    )


def test_several_classes_share_a_file_and_what_none_wants_is_reported(tmp_path: Path) -> None:
    source = SettingsSource.from_file(file(tmp_path, "listenPort=1\nwindowPanes=2\nlistnPort=3\n"))
    source.add([Property("listenPort", "5", "--port")])
    assert source.read(DoorSettings).port == 5
    assert source.read(WindowSettings).panes == 2
    assert [(entry.key, entry.line) for entry in source.unused] == [("listnPort", 3)]


@pytest.mark.parametrize(
    ("line", "allowed"),
    [
        ("listenPort=x", "a whole number from 0 to 65535"),
        ("listenPort=65536", "a whole number from 0 to 65535"),
        ("listenPort=1.5", "a whole number from 0 to 65535"),
        ("listenPort=", "a whole number from 0 to 65535"),
        ("doorOpen=yes", "true or false"),
        ("doorRatio=nan", "a number from 0 to 1"),
        ("doorCount=x", "a whole number"),
        ("doorLeast=0", "a whole number, at least 1"),
        ("doorMost=3", "a number, at most 2"),
        ("doorPath=", "a path"),
        ("doorMode=fast", "SLOW_MODE or FAST_MODE"),
    ],
)
def test_a_bad_value_names_file_line_key_value_and_what_may_be(
    tmp_path: Path, line: str, allowed: str
) -> None:
    path = file(tmp_path, f"# first\n{line}\n")
    key, _, value = line.partition("=")
    with pytest.raises(SettingsError) as caught:
        SettingsSource.from_file(path).read(DoorSettings)
    assert str(caught.value) == f"{path}, line 2: {key} is {value!r}, but must be {allowed}"


def test_all_bad_values_are_named_at_once() -> None:
    source = SettingsSource([Property("listenPort", "x"), Property("doorOpen", "y")])
    with pytest.raises(SettingsError, match=r"listenPort is 'x'.*; .*doorOpen is 'y'"):
        source.read(DoorSettings)


def test_a_file_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match=r"cannot read .*nix: No such file"):
        SettingsSource.from_file(tmp_path / "nix")
    with pytest.raises(SettingsError, match=r"broker\.conf, line 1: \\u"):
        SettingsSource.from_file(file(tmp_path, "a=\\uX"))


def test_a_home_directory_may_be_written_as_a_tilde() -> None:
    source = SettingsSource([Property("doorPath", "~/door")])
    assert source.read(DoorSettings).path == Path.home() / "door"


def test_changed_settings_are_new_ones() -> None:
    old = DoorSettings()
    new = changed(old, [Property("listenPort", "1"), Property("listenPort", "2")])
    assert (old.port, new.port) == (9876, 2)
    with pytest.raises(SettingsError, match="no such setting: nix, untold"):
        changed(old, [Property("untold", "1"), Property("nix", "1")])
    with pytest.raises(SettingsError, match="the request: listenPort is 'x'"):
        changed(old, [Property("listenPort", "x")])
    with pytest.raises(FrozenInstanceError):
        old.port = 1  # type: ignore[misc]


def test_settings_as_properties_are_read_again() -> None:
    settings = DoorSettings(port=1, is_open=False, mode=Mode.FAST, path=Path("/x"))
    properties = properties_of(settings)
    assert properties["doorMode"] == "FAST_MODE"
    assert properties["doorOpen"] == "false"
    source = SettingsSource(Property(key, value) for key, value in properties.items())
    assert source.read(DoorSettings) == settings


def test_every_setting_can_be_described() -> None:
    facts = facts_of(DoorSettings)
    assert facts[0] == SettingFacts(
        "listenPort", "9876", "a whole number from 0 to 65535", "where to listen"
    )
    assert len(facts) == 9
