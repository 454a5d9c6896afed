"""docs/compatibility.md says what the code does; who changes one changes the other."""

import re
from pathlib import Path
from typing import NamedTuple

from downrange.broker.handlers.admin.unsupported import REFUSALS
from downrange.protocol.request_codes import RequestCode, RetiredRequestCode

ROOT = Path(__file__).resolve().parents[4]
SOURCE = ROOT / "src" / "downrange"
ROUTE = re.compile(r"\b(?:RequestCode|Code)\.([A-Z_0-9]+): self\.")
ROW = re.compile(r"\| (\d+) \| (\w+) \| ([\w ]+) \| (\w+)(?:, (\d+))? \| (.+) \|")


class Row(NamedTuple):
    """One line of the table."""

    name: str
    whose: str
    state: str
    response_code: str
    note: str


def rows() -> dict[int, Row]:
    text = (ROOT / "docs" / "compatibility.md").read_text(encoding="utf-8")
    _, table = text.split("| --- | --- | --- | --- | --- |\n")
    found = [ROW.fullmatch(line) for line in table.splitlines()]
    assert all(found), "a line of the table cannot be read"
    return {int(one[1]): Row(*one.groups()[1:]) for one in found if one is not None}


def routed(*files: Path) -> set[int]:
    names = {name for file in files for name in ROUTE.findall(file.read_text(encoding="utf-8"))}
    return {RequestCode[name].value for name in names}


def test_the_page_has_every_code_under_its_name() -> None:
    names = {code.value: code.name for code in (*RequestCode, *RetiredRequestCode)}
    assert {code: row.name for code, row in rows().items()} == names


def test_the_page_says_served_where_a_handler_has_a_route() -> None:
    served = {(code, row.whose) for code, row in rows().items() if row.state == "served"}
    broker = routed(*(SOURCE / "broker" / "handlers").rglob("*.py"))
    nameserver = routed(SOURCE / "nameserver" / "handlers.py")
    expected = {(code, "broker") for code in broker}
    expected |= {(code, "name server") for code in nameserver - broker}
    assert served == expected


def test_the_page_has_the_refusals_word_for_word() -> None:
    served = routed(*(SOURCE / "broker" / "handlers").rglob("*.py"))
    refused = {
        code: (int(row.response_code), row.note)
        for code, row in rows().items()
        if row.state == "refused"
    }
    assert refused == {code: one for code, one in REFUSALS.items() if code not in served}


def test_the_tests_that_the_page_names_are_there() -> None:
    for row in rows().values():
        for name in re.findall(r"`([^`]+)`", row.note):
            assert (ROOT / "tests" / f"{name}.py").exists(), name
        assert row.state not in {"served", "sent"} or "`" in row.note
