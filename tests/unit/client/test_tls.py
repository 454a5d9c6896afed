"""TLS against a real server: verified by default, for every kind of client, with clear errors."""

import asyncio
import contextlib
import logging
import pickle
import socket
import ssl
import threading
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Protocol

import pytest
from command_line import CommandLine
from tls_relay import (
    CA,
    CLIENT,
    CLIENT_KEY,
    KEY_PASSWORD,
    OTHER_CA,
    server_context,
    tls_in_front_of,
)

import downrange
from downrange import ClientSettings, NoNameServerError, TlsSettings, sync
from downrange.admin.admin_client import AdminClient
from downrange.app.tls_choice import TlsChoice, tls_of_environment
from downrange.client import tls
from downrange.client.errors import BrokerUnreachableError, RocketMQError
from downrange.client.session_table import SessionTable
from downrange.client.tls import TlsSettingsError
from downrange.embedded.dev_cluster import DevCluster
from downrange.spark.link import Link

TRUSTING = TlsSettings(ca_file=CA)


class Behind(Protocol):
    """Puts TLS with a certificate in front of the cluster; the address of its name server."""

    def __call__(self, certificate: str = "server", *, client_required: bool = False) -> str: ...


@pytest.fixture(scope="module")
def cluster() -> Iterator[DevCluster]:
    with DevCluster() as cluster:
        yield cluster


@pytest.fixture
def behind(cluster: DevCluster) -> Iterator[Behind]:
    with contextlib.ExitStack() as stack:

        def start(certificate: str = "server", *, client_required: bool = False) -> str:
            context = server_context(certificate, client_required=client_required)
            (broker,) = cluster.broker_addresses.values()
            return stack.enter_context(tls_in_front_of(cluster.name_servers, broker, context))

        yield start


def _settings(address: str, settings: TlsSettings | None) -> ClientSettings:
    return ClientSettings(
        name_servers=address, tls=settings, api_timeout_s=10, connect_timeout_s=10
    )


def _send(address: str, settings: TlsSettings | None) -> downrange.SendReceipt:
    async def main() -> downrange.SendReceipt:
        sessions = SessionTable(nonce=1)
        async with downrange.connect(
            settings=_settings(address, settings), sessions=sessions
        ) as mq:
            return await mq.send("orders", b"secret", timeout_s=10)

    return asyncio.run(main())


def test_every_kind_of_client_sends_and_reads_over_verified_tls(
    behind: Behind, tmp_path: Path
) -> None:
    address = behind()
    assert _send(address, TRUSTING).queue.topic == "orders"
    with sync.connect(address, tls=TRUSTING) as mq:
        assert mq.send("orders", b"of a thread").queue.topic == "orders"

    async def topics() -> list[str]:
        sessions = SessionTable(nonce=1)
        async with AdminClient(_settings(address, TRUSTING), sessions=sessions) as admin:
            return list(await admin.topics.names())

    assert "orders" in asyncio.run(topics())
    link = Link(address, timeout_s=10, tls=TRUSTING)
    link.close()
    cli = CommandLine(address, tmp_path)
    printed = cli.do("consume", "orders", "-e", "--tls-ca", CA).out
    assert "of a thread" in printed


@pytest.mark.parametrize(
    ("certificate", "settings", "text"),
    [
        ("server", TlsSettings(ca_file=OTHER_CA), "is not trusted by TLS CA file"),
        ("server", TlsSettings(), "is not trusted by the CAs of the system"),
        ("named", TRUSTING, "is not valid for '127.0.0.1'; set the TLS server name"),
        ("server", TlsSettings(ca_file=CA, server_name="else.example"), "valid for 'else.example'"),
        ("expired", TRUSTING, "certificate has expired"),
    ],
    ids=["wrong CA", "system CAs", "wrong host", "wrong name", "expired"],
)
def test_a_server_that_cannot_be_verified_is_refused_with_the_setting_to_look_at(
    behind: Behind, certificate: str, settings: TlsSettings, text: str
) -> None:
    address = behind(certificate)
    with pytest.raises(NoNameServerError, match=text):
        _send(address, settings)
    with pytest.raises(BrokerUnreachableError, match=text):
        Link(address, timeout_s=10, tls=settings)


def test_a_server_name_is_verified_instead_of_the_address(behind: Behind) -> None:
    settings = replace(TRUSTING, server_name="brokers.example")
    address = behind("named")
    assert _send(address, settings).queue.topic == "orders"
    Link(address, timeout_s=10, tls=settings).close()


def test_without_verification_any_server_is_taken_and_the_log_says_so_once(
    behind: Behind, caplog: pytest.LogCaptureFixture
) -> None:
    address = behind("expired")
    settings = TlsSettings(verify=False)
    tls._warn_unverified.cache_clear()
    with caplog.at_level(logging.WARNING, "downrange.client.tls"):
        _send(address, settings)
        _send(address, settings)
        Link(address, timeout_s=10, tls=settings).close()
    (line,) = [one.getMessage() for one in caplog.records if one.name == "downrange.client.tls"]
    assert "verification of servers is off" in line


def test_a_server_may_require_a_certificate_of_the_client(behind: Behind) -> None:
    address = behind(client_required=True)
    mine = TlsSettings(
        ca_file=CA, certificate_file=CLIENT, key_file=CLIENT_KEY, key_password=KEY_PASSWORD
    )
    assert _send(address, mine).queue.topic == "orders"
    with (
        _served(_shake_hands) as address,
        pytest.raises(NoNameServerError, match=r"(?i)certificate.required"),
    ):
        _send(address, TRUSTING)


def test_tls_to_a_server_without_it_is_named(cluster: DevCluster) -> None:
    with pytest.raises(NoNameServerError, match=r"does not speak TLS|during the TLS handshake"):
        _send(cluster.name_servers, TRUSTING)


def test_plain_text_to_a_server_with_tls_is_named(behind: Behind) -> None:
    with pytest.raises(NoNameServerError, match="TLS is switched on at both ends or at neither"):
        _send(behind(), None)
    with (
        _served(_alert) as address,
        pytest.raises(NoNameServerError, match="expects TLS; switch it on here"),
    ):
        _send(address, None)


def _alert(connection: socket.socket) -> None:
    """What some servers answer to a peer without TLS; others just close."""
    with connection:
        connection.sendall(b"\x15\x03\x03\x00\x02\x02\x46")
        while connection.recv(1024):
            pass


@contextlib.contextmanager
def _served(serve: Callable[[socket.socket], None]) -> Iterator[str]:
    """The address of a server that does this with its first connection."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        server.settimeout(30)
        thread = threading.Thread(target=lambda: serve(server.accept()[0]))
        thread.start()
        yield f"127.0.0.1:{server.getsockname()[1]}"
        thread.join(30)


def _shake_hands(connection: socket.socket) -> None:
    """What servers on OpenSSL do: a handshake that fails ends with an alert to the peer.

    The relay does not: asyncio throws the alert away.
    """
    with connection, connection.dup() as after:
        with contextlib.suppress(ssl.SSLError):
            context = server_context("server", client_required=True)
            context.wrap_socket(connection, server_side=True)
        after.shutdown(socket.SHUT_WR)
        while after.recv(1024):  # closing with unread data would reset the connection
            pass


def test_use_tls_alone_verifies_by_the_system() -> None:
    assert ClientSettings(use_tls=True).tls == TlsSettings()
    assert ClientSettings(tls=TRUSTING).use_tls
    assert ClientSettings().tls is None
    context = TlsSettings().context()
    assert context.check_hostname
    assert context.verify_mode is ssl.CERT_REQUIRED


@pytest.mark.parametrize(
    ("settings", "text"),
    [
        ({"ca_file": "/no/such.pem"}, "TLS CA file '/no/such.pem' cannot be read: No such file"),
        ({"ca_file": CLIENT_KEY}, "holds no PEM certificates"),
        ({"certificate_file": "/no/me.pem"}, "certificate file '/no/me.pem' cannot be read"),
        ({"certificate_file": CLIENT, "key_file": "/no/key"}, "key file '/no/key' cannot be read"),
        ({"certificate_file": CLIENT, "key_file": CLIENT_KEY}, "the key password is right"),
        ({"key_file": CLIENT_KEY}, "without a certificate file"),
        ({"ca_file": CA, "verify": False}, "verification is off"),
    ],
)
def test_settings_that_cannot_work_name_the_file(settings: dict[str, str], text: str) -> None:
    with pytest.raises(TlsSettingsError, match=text):
        TlsSettings(**settings).context()  # type: ignore[arg-type]
    assert issubclass(TlsSettingsError, RocketMQError)


def test_the_password_of_the_key_is_in_no_text() -> None:
    settings = TlsSettings(certificate_file=CLIENT, key_password=KEY_PASSWORD)
    assert KEY_PASSWORD not in repr(settings)
    assert KEY_PASSWORD not in repr(ClientSettings(tls=settings))
    assert pickle.loads(pickle.dumps(settings)) == settings


def test_the_environment_and_options_are_laid_over_each_other() -> None:
    assert tls_of_environment({"HOME": "/root"}) is None
    choice = tls_of_environment(
        {
            "DOWNRANGE_TLS_CA": "/ca.pem",
            "DOWNRANGE_TLS_KEY_PASSWORD": "hush",
            "DOWNRANGE_TLS_CERT": "/me.pem",
            "DOWNRANGE_TLS_SERVER_NAME": "brokers.example",
        }
    )
    assert choice is not None
    assert choice.applied(None) == TlsSettings(
        ca_file="/ca.pem",
        certificate_file="/me.pem",
        key_password="hush",
        server_name="brokers.example",
    )
    assert TlsChoice().applied(TRUSTING) == TRUSTING
    assert TlsChoice().applied(None) is None
    assert TlsChoice(tls=False).applied(TRUSTING) is None
    assert TlsChoice(verify=False).applied(TRUSTING) == TlsSettings(verify=False)
    off = tls_of_environment({"DOWNRANGE_TLS": "true", "DOWNRANGE_TLS_VERIFY": "0"})
    assert off == TlsChoice(tls=True, verify=False)
    with pytest.raises(ValueError, match="DOWNRANGE_TLS is 'maybe'"):
        tls_of_environment({"DOWNRANGE_TLS": "maybe"})


def test_a_context_keeps_how_to_connect(behind: Behind, tmp_path: Path) -> None:
    address = behind("named")
    cli = CommandLine(address, tmp_path)
    words = ("--tls-ca", CA, "--tls-server-name", "brokers.example")
    cli.do("context", "add", "secure", "-n", address, *words)
    assert cli.do("topic", "list", "--context", "secure").code == 0
    assert cli.run("topic", "list").code != 0, "without the context"
    refused = cli.run("context", "add", "odd", "-n", address, "--tls-ca", "/no/such.pem")
    assert refused.code == 2
    assert "/no/such.pem" in refused.err


def test_a_peer_that_closes_during_the_handshake_is_named() -> None:
    with (
        _served(socket.socket.close) as address,
        pytest.raises(NoNameServerError, match="speak TLS"),
    ):
        _send(address, TRUSTING)
