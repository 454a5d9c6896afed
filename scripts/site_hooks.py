"""Hooks of MkDocs: no page is left out, and links that leave docs/ name a file of the sources.

On a site there is no file outside docs/. A link to something that does not exist anywhere stays as
it is, and --strict fails.
"""

import re
from collections.abc import MutableMapping
from pathlib import Path
from typing import Final, Protocol

ROOT: Final = Path(__file__).resolve().parent.parent
DOCS: Final = ROOT / "docs"
OTHERS: Final = "More"
_OUTSIDE: Final = re.compile(r"\[([^\]]+)\]\(((?:\.\./)+[^)\s]+)\)")

Nav = list[dict[str, object]]


class _File(Protocol):
    abs_src_path: str


class _Page(Protocol):
    file: _File


def on_config(config: MutableMapping[str, object]) -> MutableMapping[str, object]:
    """Called by MkDocs first: "formats/*" becomes the pages of a folder, other pages come last."""
    nav = config["nav"]
    assert isinstance(nav, list)
    config["nav"] = complete(nav, sorted(str(page.relative_to(DOCS)) for page in pages()))
    return config


def on_page_markdown(markdown: str, page: _Page, **_: object) -> str:
    """Called by MkDocs for the text of each page."""
    source = Path(page.file.abs_src_path).parent

    def named(match: re.Match[str]) -> str:
        target = (source / match.group(2)).resolve()
        if not target.exists() or DOCS in target.parents:
            return match.group(0)
        return f"{match.group(1)} (`{target.relative_to(ROOT)}` in the sources)"

    return _OUTSIDE.sub(named, markdown)


def pages() -> list[Path]:
    """All pages that there are."""
    return sorted(DOCS.glob("**/*.md"))


def complete(nav: Nav, names: list[str]) -> Nav:
    """The navigation with every page in it, once."""
    filled = [{title: _filled(value, names) for title, value in part.items()} for part in nav]
    named = set(re.findall(r"[\w/.-]+\.md", repr(filled)))
    others = [name for name in names if name not in named]
    return [*filled, {OTHERS: others}] if others else filled


def _filled(value: object, names: list[str]) -> object:
    if isinstance(value, list):
        return [{title: _filled(one, names) for title, one in part.items()} for part in value]
    if isinstance(value, str) and value.endswith("/*"):
        return [name for name in names if name.startswith(value.removesuffix("*"))]
    return value
