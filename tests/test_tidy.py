"""House rules that a machine can check; each failure names the file and the rule."""

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
SOURCE = ROOT / "src" / "downrange"
MODULE_LINES_MAX = 400
FUNCTION_LINES_MAX = 70
ARCHITECTURE_LINES_MAX = 300
NAMES_THAT_TELL_NOTHING = {"utils", "util", "helpers", "common", "base", "impl", "manager", "misc"}

# path relative to the repository -> why a rule is waived; this list may only shrink.
EXCEPTIONS: dict[str, str] = {}

MODULES = sorted(
    path
    for folder in (SOURCE, ROOT / "tests", ROOT / "benchmarks", ROOT / "scripts")
    for path in folder.rglob("*.py")
)
PACKAGES = sorted(path.parent for path in SOURCE.rglob("__init__.py"))


def functions(tree: ast.Module) -> Iterator[ast.FunctionDef | ast.AsyncFunctionDef]:
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            yield node


@pytest.mark.parametrize("path", MODULES, ids=lambda path: str(path.relative_to(ROOT)))
def test_module_keeps_the_house_rules(path: Path) -> None:
    if str(path.relative_to(ROOT)) in EXCEPTIONS:
        return
    text = path.read_text(encoding="utf-8")
    tree = ast.parse(text)
    lines = text.count("\n")
    assert lines <= MODULE_LINES_MAX, f"{path}: {lines} lines, split it by responsibility"
    assert path.stem not in NAMES_THAT_TELL_NOTHING, f"{path}: name it after the noun it holds"
    assert ast.get_docstring(tree), f"{path}: the first line says what the module is for"
    for function in functions(tree):
        length = (function.end_lineno or function.lineno) - function.lineno + 1
        assert length <= FUNCTION_LINES_MAX, (
            f"{path}:{function.lineno} {function.name} {length} lines"
        )


@pytest.mark.parametrize("package", PACKAGES, ids=lambda path: str(path.relative_to(SOURCE.parent)))
def test_package_is_named_in_the_architecture(package: Path) -> None:
    name = str(package.relative_to(SOURCE.parent))
    assert f"`{name}`" in (ROOT / "ARCHITECTURE.md").read_text(encoding="utf-8")


def test_architecture_stays_readable_in_one_sitting() -> None:
    lines = (ROOT / "ARCHITECTURE.md").read_text(encoding="utf-8").count("\n")
    assert lines <= ARCHITECTURE_LINES_MAX


def test_exceptions_name_files_that_exist() -> None:
    assert [name for name in EXCEPTIONS if not (ROOT / name).exists()] == []
