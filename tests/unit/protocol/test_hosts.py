"""Addresses as bytes and as text."""

from ipaddress import IPv4Address, IPv6Address

import pytest
from hypothesis import given
from hypothesis import strategies as st

from downrange.protocol.errors import LocalProtocolError, RemoteProtocolError
from downrange.protocol.hosts import decode_host, encode_host, format_address, parse_address

PORTS = st.integers(0, 65535)
V6 = st.ip_addresses(v=6, network="2000::/3")  # none of them is IPv4 in IPv6 clothes


def test_host_is_address_and_port() -> None:
    assert encode_host("10.1.2.3", 10911) == bytes.fromhex("0a01020300002a9f")
    assert decode_host(bytes.fromhex("0a01020300002a9f")) == ("10.1.2.3", 10911)
    v6 = bytes.fromhex("20010db8000000000000000000000001" + "00002a9f")
    assert encode_host("2001:db8::1", 10911) == v6
    assert decode_host(v6) == ("2001:db8::1", 10911)


@given(st.one_of(st.ip_addresses(v=4), V6), PORTS)
def test_host_survives_bytes_and_text(ip: IPv4Address | IPv6Address, port: int) -> None:
    assert decode_host(encode_host(str(ip), port)) == (str(ip), port)
    assert parse_address(format_address(str(ip), port)) == (str(ip), port)


def test_ipv4_in_ipv6_clothes_is_ipv4() -> None:
    assert encode_host("::ffff:10.1.2.3", 1) == encode_host("10.1.2.3", 1)
    assert decode_host(bytes(10) + b"\xff\xff" + bytes([10, 1, 2, 3, 0, 0, 0, 1])) == (
        "10.1.2.3",
        1,
    )


def test_zone_of_a_link_local_address_is_left_out() -> None:
    assert decode_host(encode_host("fe80::1%eth0", 1)) == ("fe80::1", 1)


def test_ipv6_text_has_brackets() -> None:
    assert format_address("::1", 9876) == "[::1]:9876"
    assert format_address("127.0.0.1", 9876) == "127.0.0.1:9876"


def test_address_may_be_a_name_or_lack_brackets() -> None:
    assert parse_address("broker-a.example:10911") == ("broker-a.example", 10911)
    assert parse_address("2001:db8:0:0:0:0:0:1:10911") == ("2001:db8:0:0:0:0:0:1", 10911)


@pytest.mark.parametrize("text", ["", "a", ":1", "a:", "a:x", "a:-1", "a:65536", "a:²", "[]:1"])
def test_what_is_no_address_is_refused(text: str) -> None:
    with pytest.raises(RemoteProtocolError):
        parse_address(text)


@pytest.mark.parametrize("data", [b"", bytes(4), bytes(16), bytes(4) + b"\x00\x01\x00\x00"])
def test_what_is_no_host_is_refused(data: bytes) -> None:
    with pytest.raises(RemoteProtocolError):
        decode_host(data)


@pytest.mark.parametrize(("ip", "port"), [("localhost", 1), ("10.1.2", 1), ("1.2.3.4", 65536)])
def test_what_cannot_be_stored_is_our_own_mistake(ip: str, port: int) -> None:
    with pytest.raises(LocalProtocolError):
        encode_host(ip, port)
