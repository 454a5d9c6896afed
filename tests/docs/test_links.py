"""No link of a page leads nowhere, and the navigation of the site has every page."""

import re
from pathlib import Path

import pytest

from scripts.site_hooks import OTHERS, Nav, complete

ROOT = Path(__file__).resolve().parents[2]
PAGES = sorted([*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md")])
LINK = re.compile(r"\]\(([^)\s]+)\)")
CODE = re.compile(r"^```.*?^```$|^ {4}.*?$|`[^`\n]*`", re.MULTILINE | re.DOTALL)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_lead_to_files(page: Path) -> None:
    text = CODE.sub("", page.read_text(encoding="utf-8"))
    targets = [link.partition("#")[0] for link in LINK.findall(text) if "://" not in link]
    missing = [target for target in targets if target and not (page.parent / target).exists()]
    assert missing == []


def test_the_navigation_takes_folders_and_pages_that_it_does_not_name() -> None:
    nav: Nav = [{"Start": "index.md"}, {"How": [{"Cook": "cook.md"}, {"All": "sub/*"}]}]
    names = ["cook.md", "index.md", "new.md", "sub/a.md", "sub/b.md"]
    assert complete(nav, names) == [
        {"Start": "index.md"},
        {"How": [{"Cook": "cook.md"}, {"All": ["sub/a.md", "sub/b.md"]}]},
        {OTHERS: ["new.md"]},
    ]


def test_pages_that_the_navigation_names_are_there() -> None:
    named = re.findall(r"[\w/.-]+\.md", (ROOT / "mkdocs.yml").read_text(encoding="utf-8"))
    assert [name for name in named if not (ROOT / "docs" / name).exists()] == []
    assert named
