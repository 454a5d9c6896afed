"""The key-value table and its file."""

from pathlib import Path

import pytest

from downrange.nameserver.kv_table import KvTable
from downrange.runtime.disk import Disk
from downrange.runtime.durable_file import DurableFileError

# As Apache RocketMQ 5.5.0 left it after the same three puts and one delete.
APACHE_FILE = '{"configTable":{"A":{},"N":{"a":"2","b":"é\\n\\"1"}}}'.encode()


class FullDisk(Disk):
    def write(self, path: Path, data: bytes) -> None:
        raise OSError(28, "No space left on device", str(path), None, str(len(data)))


def test_the_file_has_the_bytes_of_apache(tmp_path: Path) -> None:
    path = tmp_path / "made on demand" / "kvConfig.json"
    table = KvTable(Disk(), path)
    table.load()
    table.put("N", "b", 'é\n"1')
    table.put("N", "a", "2")
    table.put("A", "x", "2")
    table.delete("A", "x")
    table.delete("A", "x")
    table.delete("nix", "x")
    assert path.read_bytes() == APACHE_FILE


def test_what_apache_wrote_is_there_after_a_start(tmp_path: Path) -> None:
    path = tmp_path / "kvConfig.json"
    path.write_bytes(APACHE_FILE)
    table = KvTable(Disk(), path)
    table.load()
    assert table.get("N", "b") == 'é\n"1'
    assert table.get("N", "nix") is None
    assert table.get("nix", "b") is None
    assert table.namespace("N") == {"a": "2", "b": 'é\n"1'}
    assert table.namespace("A") == {}
    assert table.namespace("nix") is None


def test_a_change_that_the_disk_refuses_does_not_happen(tmp_path: Path) -> None:
    table = KvTable(FullDisk(), tmp_path / "kvConfig.json")
    with pytest.raises(OSError, match="No space left"):
        table.put("N", "a", "1")
    assert table.namespace("N") is None


def test_a_damaged_file_stops_the_start_instead_of_being_overwritten(tmp_path: Path) -> None:
    path = tmp_path / "kvConfig.json"
    path.write_bytes(b'{"configTable":')
    with pytest.raises(DurableFileError, match=r"kvConfig\.json"):
        KvTable(Disk(), path).load()
