"""Addresses and paths in the settings of a broker."""

import socket
from pathlib import Path

import pytest
from unit.broker.one_broker import OneBroker, records, small_files

from downrange.broker.host_names import ip_of
from downrange.broker.settings import BrokerSettings, StoreFileSettings, own_address
from downrange.protocol.hosts import encode_host
from downrange.runtime.settings import SettingsError
from downrange.testing.virtual_time import run


def test_slaves_are_told_brokerip2_and_the_port_for_them() -> None:
    plain = BrokerSettings(address="10.0.0.1")
    assert plain.ha_address(10911) == f"{own_address()}:10912"
    other = BrokerSettings(address="10.0.0.1", ha_host="10.9.8.7", ha_port=4711)
    assert other.ha_address(10911) == "10.9.8.7:4711"


@pytest.mark.parametrize(
    ("key", "value", "problem"),
    [
        ("address", "10.0.0.1:10911", "brokerIP1 is '10.0.0.1:10911', but must be an IP address"),
        ("address", "10.0.0.999", "brokerIP1 is '10.0.0.999', but must be an IP address"),
        ("address", "0.0.0.0", "brokerIP1 is '0.0.0.0', which clients cannot connect to"),
        ("ha_host", "a b", "brokerIP2 is 'a b', but must be an IP address or a host name"),
        ("name_servers", "127.0.0.1:9876;localhost", "namesrvAddr: 'localhost' is not host:port"),
    ],
)
def test_addresses_that_nobody_could_connect_to_are_refused(
    key: str, value: str, problem: str
) -> None:
    with pytest.raises(SettingsError) as caught:
        BrokerSettings(**{key: value})  # type: ignore[arg-type]
    assert str(caught.value).startswith(problem)


@pytest.mark.parametrize("host", ["10.0.0.1", "::1", "broker-1.example.org", "localhost", "b_1"])
def test_addresses_and_host_names_are_taken(host: str) -> None:
    BrokerSettings(address=host, ha_host=host)


def test_a_host_name_is_told_as_it_is_and_records_carry_its_address(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    broker = BrokerSettings(address="localhost")
    assert broker.effective_address == "localhost"
    host = StoreFileSettings(root="/s").store_settings(broker, 10911).store_host
    assert host in {encode_host("127.0.0.1", 10911), encode_host("::1", 10911)}

    def unknown(*_: object, **__: object) -> None:
        raise socket.gaierror(-2, "Name or service not known")

    monkeypatch.setattr(socket, "getaddrinfo", unknown)
    with pytest.raises(SettingsError, match="'no-such-host', which cannot be resolved"):
        ip_of("no-such-host")


def test_the_commit_log_is_where_the_settings_say() -> None:
    broker = BrokerSettings(address="10.0.0.1")
    default = StoreFileSettings(root="/s").store_settings(broker, 1)
    assert default.log_paths.everywhere == (Path("/s/commitlog"),)
    files = StoreFileSettings(root="/s", commit_log="/b,/a", read_only_logs="/b,/c")
    paths = files.store_settings(broker, 1).log_paths
    assert (paths.everywhere, paths.writable) == (
        (Path("/b"), Path("/a"), Path("/c")),
        (Path("/a"),),
    )


def test_paths_of_which_none_can_be_written_are_refused() -> None:
    with pytest.raises(SettingsError, match="no path is left for new files"):
        StoreFileSettings(commit_log="/a", read_only_logs="/a")


def test_a_broker_keeps_its_log_where_the_settings_say(tmp_path: Path) -> None:
    files = small_files(tmp_path, commit_log=str(tmp_path / "fast"))

    async def main() -> None:
        async with OneBroker(tmp_path, store_files=files) as broker:
            await broker.send("orders", b"one")
        async with OneBroker(tmp_path, store_files=files) as broker:
            assert [record.body for record in records(await broker.pull("orders"))] == [b"one"]

    run(main())
    assert (tmp_path / "fast" / f"{0:020d}").exists()
    assert not (tmp_path / "store" / "commitlog").exists()
