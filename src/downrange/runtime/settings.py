"""Settings of a process: declared once, read from property files, frozen.

A settings class is a frozen dataclass whose fields are made by `setting`, one line each:

    @dataclass(frozen=True, slots=True, kw_only=True)
    class DoorSettings:
        port: int = setting("listenPort", 9876, least=0, most=65_535, about="where to listen")

One file may serve several classes: `SettingsSource.read` takes what belongs to a class, and what no
class has asked for is left in `unused`, so that a misspelt key is reported and not ignored.
"""

import dataclasses
import difflib
import typing
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import Enum
from functools import cache
from pathlib import Path
from types import UnionType
from typing import TYPE_CHECKING, ClassVar, Protocol, TypeVar

from downrange.runtime.property_text import Property, read_properties

if TYPE_CHECKING:
    from dataclasses import Field

_DECLARATION = "setting"
_NEAR = 0.8  # share of letters in the same order: one or two wrong ones in a usual key
_SWITCH = {"true": True, "false": False}

T = TypeVar("T")


class _Dataclass(Protocol):
    # What typeshed itself says of a dataclass, but for its Any.
    __dataclass_fields__: ClassVar[dict[str, "Field[object]"]]


S = TypeVar("S", bound=_Dataclass)


class SettingsError(ValueError):
    """A setting that cannot be used; the text says where, which key, which value, what may be."""


@dataclass(frozen=True, slots=True)
class _Declaration:
    key: str
    least: float | None
    most: float | None
    about: str


@dataclass(frozen=True, slots=True)
class SettingFacts:
    """What a user may know about a setting."""

    key: str
    default: str
    allowed: str
    about: str


def setting(
    key: str, default: T, *, about: str, least: float | None = None, most: float | None = None
) -> T:
    """Declare a field of a settings class: the key in files, the default, the bounds."""
    metadata = {_DECLARATION: _Declaration(key, least, most, about)}
    return dataclasses.field(default=default, metadata=metadata)


class SettingsSource:
    """Properties of one start, from files and from the command line; later ones win."""

    def __init__(self, properties: Iterable[Property] = ()) -> None:
        self._properties: dict[str, Property] = {}
        self._is_used: set[str] = set()
        self.add(properties)

    @classmethod
    def from_file(cls, path: Path) -> "SettingsSource":
        """The properties of a file; `SettingsError` if it cannot be read."""
        try:
            return cls(read_properties(path.read_bytes(), str(path)))
        except OSError as error:
            raise SettingsError(f"cannot read {path}: {error.strerror}") from error
        except ValueError as error:
            raise SettingsError(str(error)) from None

    def add(self, properties: Iterable[Property]) -> None:
        """Add properties that win over those already here."""
        self._properties.update((entry.key, entry) for entry in properties)

    def read(self, settings_class: type[S]) -> S:
        """Build the settings of a class; `SettingsError` names all values that are wrong."""
        mine = [self._properties[key] for key in _fields(settings_class) if key in self._properties]
        self._is_used.update(entry.key for entry in mine)
        return settings_class(**_values(settings_class, mine))

    @property
    def entries(self) -> list[Property]:
        """All properties, read or not."""
        return list(self._properties.values())

    @property
    def unused(self) -> list[Property]:
        """What no class has read."""
        return [entry for key, entry in self._properties.items() if key not in self._is_used]


def changed(settings: S, properties: Iterable[Property]) -> S:
    """The settings with some values replaced; `SettingsError` names every key that is not one."""
    wanted = {entry.key: entry for entry in properties}
    unknown = sorted(wanted.keys() - _fields(type(settings)).keys())
    if unknown:
        raise SettingsError(f"no such setting: {', '.join(unknown)}")
    return dataclasses.replace(settings, **_values(type(settings), wanted.values()))


def properties_of(settings: _Dataclass) -> dict[str, str]:
    """All values as text, by key, as `SettingsSource` reads them."""
    return {
        key: _written(getattr(settings, field.name))
        for key, field in _fields(type(settings)).items()
    }


def facts_of(settings_class: type[_Dataclass]) -> list[SettingFacts]:
    """Describe every setting of a class, for a reference page."""
    return [
        SettingFacts(key, _written(field.default), _allowed(field), field.declaration.about)
        for key, field in _fields(settings_class).items()
    ]


def nearest_key(key: str, known: Iterable[str]) -> str | None:
    """The known key that a misspelt one most likely means; None if none is near."""
    by_lower = {candidate.lower(): candidate for candidate in known}
    found = difflib.get_close_matches(key.lower(), by_lower, n=1, cutoff=_NEAR)
    return by_lower[found[0]] if found else None


def keys_of(*settings_classes: type[_Dataclass]) -> list[str]:
    """The keys of all settings of these classes."""
    return [key for settings_class in settings_classes for key in _fields(settings_class)]


@dataclass(frozen=True, slots=True)
class _Field:
    name: str
    type: object
    default: object
    declaration: _Declaration


@cache
def _fields(settings_class: type[_Dataclass]) -> Mapping[str, _Field]:
    """The declared fields by key."""
    types = typing.get_type_hints(settings_class)
    fields = {}
    for field in dataclasses.fields(settings_class):
        declaration = field.metadata.get(_DECLARATION)
        if isinstance(declaration, _Declaration):
            assert declaration.key not in fields, f"{declaration.key} is declared twice"
            fields[declaration.key] = _Field(
                field.name, types[field.name], field.default, declaration
            )
    return fields


def _values(settings_class: type[_Dataclass], properties: Iterable[Property]) -> dict[str, object]:
    fields = _fields(settings_class)
    values: dict[str, object] = {}
    problems = []
    for entry in properties:
        field = fields[entry.key]
        value = _parsed(field, entry.value.strip())
        if value is None:
            problems.append(
                f"{entry.place}: {entry.key} is {entry.value!r}, but must be {_allowed(field)}"
            )
        else:
            values[field.name] = value
    if problems:
        raise SettingsError("; ".join(problems))
    return values


def _parsed(field: _Field, text: str) -> object | None:
    """The value, or None if the text cannot be one."""
    kind = field.type
    if kind is bool:
        return _SWITCH.get(text.lower())
    if kind is str:
        return text
    if kind is Path:
        return Path(text).expanduser() if text else None
    if isinstance(kind, type) and issubclass(kind, Enum):
        return {str(member.value): member for member in kind}.get(text)
    assert kind is int or kind is float, f"{field.declaration.key} cannot be read: {kind}"
    try:
        number = int(text) if kind is int else float(text)
    except ValueError:
        return None
    least, most = field.declaration.least, field.declaration.most
    # Written so that NaN, which compares with nothing, does not pass.
    is_allowed = (least is None or number >= least) and (most is None or number <= most)
    return number if is_allowed else None


def _allowed(field: _Field) -> str:
    """What a value may be, in words."""
    kind = field.type
    assert not isinstance(kind, UnionType), f"{field.declaration.key}: give the field one type"
    if kind is bool:
        return "true or false"
    if kind is str:
        return "text"
    if kind is Path:
        return "a path"
    if isinstance(kind, type) and issubclass(kind, Enum):
        return " or ".join(str(member.value) for member in kind)
    noun = "a whole number" if kind is int else "a number"
    match field.declaration:
        case _Declaration(least=None, most=None):
            return noun
        case _Declaration(least=least, most=None):
            return f"{noun}, at least {least}"
        case _Declaration(least=None, most=most):
            return f"{noun}, at most {most}"
        case _Declaration(least=least, most=most):
            return f"{noun} from {least} to {most}"


def _written(value: object) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, Enum):
        return str(value.value)
    return str(value)
