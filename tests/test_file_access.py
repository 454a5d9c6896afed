"""Files are touched through `Disk` alone, so that a test can make each of them fail or forget."""

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
SOURCE = ROOT / "src" / "downrange"

# Calls by their full name.
FUNCTIONS = {"open", "io.open", "mmap.mmap", "codecs.open", "os.fdopen"}
# All functions of these modules.
MODULES = ("shutil.", "tempfile.", "glob.", "fileinput.", "os.path.")
# Functions of `os` that touch files or descriptors of files.
OS_FUNCTIONS = {
    "access", "chmod", "chown", "close", "copy_file_range", "dup2", "fallocate", "fdatasync",
    "fstat", "fsync", "ftruncate", "link", "listdir", "lseek", "lstat", "makedirs", "memfd_create",
    "mkdir", "open", "posix_fadvise", "posix_fallocate", "pread", "preadv", "pwrite", "pwritev",
    "read", "readlink", "remove", "removedirs", "rename", "renames", "replace", "rmdir", "scandir",
    "sendfile", "stat", "statvfs", "symlink", "sync", "truncate", "unlink", "utime", "walk",
    "write", "writev",
}  # fmt: skip
# Methods of `Path`; `is_path_method` knows more, which other classes have too.
PATH_METHODS = {
    "chmod", "hardlink_to", "is_dir", "is_file", "is_mount", "is_symlink", "iterdir", "lchmod",
    "lstat", "mkdir", "read_bytes", "read_text", "rglob", "rmdir", "samefile", "symlink_to",
    "write_bytes", "write_text",
}  # fmt: skip
# Variables that hold something else with such methods: a `Disk`, files of a Spark cluster, a table.
NOT_PATHS = {"disk", "_disk", "_files", "_checkpoint", "topics"}

# module -> why it may touch files by itself; this list may only shrink.
EXCEPTIONS = {
    "runtime/disk.py": "this is Disk",
    "runtime/settings.py": "reads the property file that a user names on the command line",
    "store/mapped_file.py": "an anonymous map stands for a file that is not open",
    "store/read_only_disk.py": "a Disk",
    "testing/drive.py": "memory that behaves like a file, without a file system",
    "testing/faulty_disk.py": "a Disk",
    "testing/power_cut_disk.py": "a Disk",
    "testing/quick_disk.py": "a Disk",
    "testing/simulated_disk.py": "a Disk",
    "monitoring/process_metrics.py": "asks the kernel about this process, in /proc",
    "runtime/descriptor_budget.py": "asks the kernel for its limits, in /proc",
    "runtime/processor_wait.py": "asks the kernel about this thread, in /proc",
    "app/stopped_store.py": "looks at the files of a store before anything opens it",
    "app/broker.py": "looks for the settings that a broker has saved, before there is a broker",
    "app/commands/contexts.py": "the user's own configuration of the command line",
    "app/commands/frame.py": "points standard output elsewhere when its reader has gone",
    "app/commands/standard_input.py": "reads standard input",
    "client/tls.py": "reads the certificates that a user names",
    "embedded/addresses.py": "asks whether this is a container",
    "embedded/cluster.py": "makes and removes the temporary directory of a cluster",
    "spark/log_files.py": "executors read the files of a broker that may be elsewhere",
    "spark/pipelines/analytics.py": "writes the report that a user asked for",
    "spark/pipelines/dead_letters.py": "writes the report that a user asked for",
    "spark/pipelines/decode.py": "reads the schema that a user names",
    "spark/pipelines/process.py": "reads the pipelines that a user names",
    "spark/pipelines/toml_file.py": "reads the pipelines that a user names",
}  # fmt: skip


def accesses(tree: ast.AST) -> Iterator[tuple[int, str]]:
    """Line and name of every call that touches a file."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Call):
            name = ast.unparse(node.func)
            is_file_function = (
                name in FUNCTIONS
                or name.startswith(MODULES)
                or (name.startswith("os.") and name[3:] in OS_FUNCTIONS)
            )
            if is_file_function or is_path_method(node):
                yield node.lineno, name


def is_path_method(call: ast.Call) -> bool:
    """Whether this is `path.unlink()`, and not `disk.unlink(path)` or `client.touch(clock)`."""
    if not isinstance(call.func, ast.Attribute):
        return False
    owner = ast.unparse(call.func.value).rpartition(".")[2]
    if owner in NOT_PATHS:
        return False
    first = call.args[0].value if call.args and isinstance(call.args[0], ast.Constant) else None
    match call.func.attr:
        case "exists" | "stat" | "touch" | "unlink":
            return not call.args
        case "open":
            return isinstance(first, str) and set(first) <= set("abrtwx+")
        case "glob":
            return isinstance(first, str)
        case method:
            return method in PATH_METHODS


MODULE_PATHS = sorted(SOURCE.rglob("*.py"))


@pytest.mark.parametrize("path", MODULE_PATHS, ids=lambda path: str(path.relative_to(SOURCE)))
def test_files_are_touched_through_disk_alone(path: Path) -> None:
    found = list(accesses(ast.parse(path.read_text(encoding="utf-8"))))
    name = str(path.relative_to(SOURCE))
    if name in EXCEPTIONS:
        assert found, f"{name} needs no exception any more: remove it from the list"
        return
    assert not found, f"{path}: take a downrange.runtime.disk.Disk instead of {found}"


def test_exceptions_name_modules_that_exist() -> None:
    assert [name for name in EXCEPTIONS if not (SOURCE / name).exists()] == []


@pytest.mark.parametrize(
    "text",
    [
        "open('x')",
        "path.read_bytes()",
        "Path(name).write_text('x')",
        "os.fsync(descriptor)",
        "os.path.exists(name)",
        "shutil.rmtree(path)",
        "tempfile.mkdtemp()",
        "mmap.mmap(3, 1)",
        "self.path.parent.mkdir(parents=True, exist_ok=True)",
        "path.unlink(missing_ok=True)",
        "(root / 'abort').is_file()",
        "path.exists()",
        "path.open('rb')",
        "folder.glob('*.toml')",
    ],
)
def test_rule_finds_file_access(text: str) -> None:
    assert list(accesses(ast.parse(text)))


@pytest.mark.parametrize(
    "text", ["disk.unlink(path)", "self._disk.sync(3)", "client.touch(clock)", "store.open()"]
)
def test_rule_leaves_other_calls_alone(text: str) -> None:
    assert not list(accesses(ast.parse(text)))
