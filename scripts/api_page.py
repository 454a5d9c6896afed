"""Writes docs/api.md from the public names of the package; a test says when it is out of date.

What is public is what `__all__` of a module names, and the few classes that pages tell of.
"""

import enum
import importlib
import inspect
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Final

PAGE: Final = Path(__file__).resolve().parent.parent / "docs" / "api.md"
_INTRODUCTION: Final = """\
# Python API

Every public name with what it takes. The pages by job say how they are used:
[producing](producing.md), [consuming](consuming.md), [programs that block](sync.md),
[apps](app.md), [testing](testing.md), [Spark](spark.md). Made by `scripts/api_page.py`.
"""
_MODULES: Final[tuple[tuple[str, tuple[str, ...]], ...]] = (
    ("downrange", ()),
    ("downrange.sync", ()),
    ("downrange.embedded", ("DevCluster",)),
    ("downrange.admin.admin_client", ("AdminClient",)),
    ("downrange.admin.topics", ("Topics", "TopicWish", "TopicState")),
    ("downrange.admin.groups", ("Groups", "GroupMembers", "GroupProgress")),
    ("downrange.admin.offsets", ("Offsets",)),
    ("downrange.admin.offset_plan", ("Target", "TargetKind", "ResetPlan", "QueueChange")),
    ("downrange.admin.messages", ("Messages",)),
    ("downrange.admin.reading", ("TopicReader", "Span")),
    ("downrange.admin.dead_letters", ("DeadLetterBox", "DeadLetters", "ResendTo")),
    ("downrange.admin.brokers", ("Brokers", "BrokerFacts")),
    ("downrange.admin.layout", ("Layout", "BrokerAddress")),
    ("downrange.admin.doctor", ("Doctor", "Checked")),
    ("downrange.spark", ()),
)
_PATHS: Final = re.compile(r"(?<![\w.'])(?:[a-z_]\w*\.)+(?=[A-Za-z_])")
_ADDRESS: Final = re.compile(
    r"<([\w.]+)[^<>]* at 0x[0-9a-f]+>|<function (\w+)[^<>]*>|<factory>|<class '[^']*'>"
)
_QUOTED: Final = re.compile(r"(?<=: )'([^']*)'|(?<=-> )'([^']*)'")
_MEMBER: Final = re.compile(r"<(\w+\.[A-Z_]+): [^>]*>")
_EMPTY_INIT: Final = "Initialize self.  See help(type(self)) for accurate signature."


def page() -> str:
    """The whole page."""
    return _INTRODUCTION + "".join(_part(name, names) for name, names in _MODULES)


def _part(module_name: str, names: tuple[str, ...]) -> str:
    module = importlib.import_module(module_name)
    entries = [
        _entry(name, getattr(module, name))
        for name in names or sorted(module.__all__, key=lambda one: (one[0].isupper(), one))
    ]
    return f"\n## {module_name}\n" + "".join(entries)


def _entry(name: str, thing: object) -> str:
    text = f"\n### {name}\n\n"
    if inspect.isclass(thing) and issubclass(thing, enum.Enum):
        members = ", ".join(f"`{member.name}`" for member in thing)
        return f"{text}{_about(thing)}\n\nOne of {members}.\n"
    if inspect.isclass(thing):
        text += f"{_call(name, thing)}{_about(thing)}\n"
        rows = [*_members(thing)]
        return text + ("\n" + "\n".join(rows) + "\n" if rows else "")
    return f"{text}{_call(name, thing)}{_about(thing)}\n"


def _call(name: str, thing: object) -> str:
    if isinstance(thing, type) and issubclass(thing, BaseException):
        return ""
    return f"```text\n{name}{_signature(thing)}\n```\n\n"


def _members(owner: type) -> Iterator[str]:
    for name, member in sorted(inspect.getmembers(owner)):
        if name.startswith("_") or _is_foreign(owner, name):
            continue
        if isinstance(member, property):
            yield f"- `{name}`: {_first(member)}"
        elif inspect.isfunction(member):
            before = "await " if inspect.iscoroutinefunction(member) else ""
            yield f"- `{before}{name}{_signature(member)}`: {_first(member)}"


def _is_foreign(owner: type, name: str) -> bool:
    """Whether a member comes from a base class that is not ours."""
    definer = next((base for base in owner.__mro__ if name in vars(base)), owner)
    return not definer.__module__.startswith("downrange")


def _signature(thing: object) -> str:
    assert callable(thing)
    found = inspect.signature(thing)
    kept = [one for one in found.parameters.values() if one.name != "self"]
    text = str(found.replace(parameters=kept))
    text = _ADDRESS.sub("…", _QUOTED.sub(r"\1\2", _MEMBER.sub(r"\1", text)))
    return _PATHS.sub("", text).replace(" -> None", "").replace("~", "")


def _about(thing: object) -> str:
    text = inspect.getdoc(thing) or ""
    return "" if text == _EMPTY_INIT else text


def _first(thing: object) -> str:
    return " ".join(_about(thing).partition("\n\n")[0].split())


def main() -> int:
    """Write the page."""
    PAGE.write_text(page(), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
