"""Reads a pipeline file. What is wrong is a `PipelineFileError` that names the key.

`${NAME}` in a text stands for a variable of the environment, so that secrets need not be written.
"""

import re
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Final, get_args

import msgspec

from downrange.spark.pipelines.definition import KINDS, Pipeline

_VARIABLE: Final = re.compile(r"\$\{([A-Za-z_][A-Za-z0-9_]*)\}")
_PLACE: Final = re.compile(r" - at `\$\.?(.*)`$")


class PipelineFileError(ValueError):
    """A pipeline file that cannot be; the text names the key and says what is allowed."""


def load(path: Path, environment: Mapping[str, str]) -> Pipeline:
    """The pipeline that a file describes."""
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise PipelineFileError(f"{path}: cannot be read: {error}") from None
    try:
        return parse(text, environment)
    except PipelineFileError as error:
        raise PipelineFileError(f"{path}: {error}") from None


def parse(text: str, environment: Mapping[str, str]) -> Pipeline:
    """The pipeline that a text describes."""
    try:
        data = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise PipelineFileError(f"no TOML: {error}") from None
    kind = data.get("kind")
    if not isinstance(kind, str) or kind not in KINDS:
        what = "is missing" if kind is None else f"is {kind!r}"
        raise PipelineFileError(f"kind {what}; there are {', '.join(KINDS)}")
    structure = KINDS[kind]
    _check_keys(data, structure, "")
    filled = _filled(data, environment)
    try:
        return msgspec.convert(filled, structure)
    except msgspec.ValidationError as error:
        raise PipelineFileError(_told(str(error))) from None


def _check_keys(data: object, structure: type[msgspec.Struct], place: str) -> None:
    if not isinstance(data, Mapping):
        return  # told by the conversion
    fields = {field.encode_name: field for field in msgspec.structs.fields(structure)}
    for key, value in data.items():
        if key not in fields:
            raise PipelineFileError(
                f"key {place + key!r} is unknown; allowed are {', '.join(sorted(fields))}"
            )
        inner = _structure_in(fields[key].type)
        if inner is None:
            continue
        if isinstance(value, list):
            for number, one in enumerate(value):
                _check_keys(one, inner, f"{place}{key}[{number}].")
        else:
            _check_keys(value, inner, f"{place}{key}.")
    for key, field in fields.items():
        if field.required and key not in data:
            raise PipelineFileError(f"key {place + key!r} is missing")


def _structure_in(found: object) -> type[msgspec.Struct] | None:
    if isinstance(found, type) and issubclass(found, msgspec.Struct):
        return found
    return next((inner for arg in get_args(found) if (inner := _structure_in(arg))), None)


def _filled(value: object, environment: Mapping[str, str]) -> object:
    if isinstance(value, str):
        return _VARIABLE.sub(lambda match: _variable(match.group(1), environment), value)
    if isinstance(value, list):
        return [_filled(one, environment) for one in value]
    if isinstance(value, Mapping):
        return {key: _filled(one, environment) for key, one in value.items()}
    return value


def _variable(name: str, environment: Mapping[str, str]) -> str:
    if name not in environment:
        raise PipelineFileError(f"${{{name}}} is used, but the environment has no {name}")
    return environment[name]


def _told(text: str) -> str:
    """msgspec's text with the key in front."""
    match = _PLACE.search(text)
    if match is None:
        return text
    what = text[: match.start()]
    return f"{match.group(1)}: {what}" if match.group(1) else what
