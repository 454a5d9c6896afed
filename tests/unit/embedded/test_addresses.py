"""Which address clients are told."""

from pathlib import Path

import pytest

from downrange.embedded.addresses import advertised_address, is_in_container, is_loopback


@pytest.mark.parametrize(
    ("host", "given", "told"),
    [
        ("127.0.0.1", "", "127.0.0.1"),
        ("localhost", "", "127.0.0.1"),
        ("10.0.0.7", "", "10.0.0.7"),
        ("0.0.0.0", "", "192.168.1.5"),
        ("::", "", "192.168.1.5"),
        ("0.0.0.0", "broker.example", "broker.example"),
        ("127.0.0.1", "10.9.9.9", "10.9.9.9"),
    ],
)
def test_clients_are_told_what_they_can_reach(host: str, given: str, told: str) -> None:
    assert advertised_address(host, given, lambda: "192.168.1.5") == told


@pytest.mark.parametrize(
    ("host", "expected"),
    [("127.0.0.1", True), ("127.9.0.1", True), ("::1", True), ("localhost", True), ("x", False)],
)
def test_loopback_is_known_by_number_and_name(host: str, *, expected: bool) -> None:
    assert is_loopback(host) is expected


@pytest.mark.parametrize("mark", [".dockerenv", "run/.containerenv"])
def test_a_container_is_known_by_its_marks(tmp_path: Path, mark: str) -> None:
    assert not is_in_container(tmp_path)
    (tmp_path / mark).parent.mkdir(exist_ok=True)
    (tmp_path / mark).touch()
    assert is_in_container(tmp_path)
