"""Connections with TLS: encrypted, and checked when there is something to check with."""

import shutil
import ssl
import subprocess
from pathlib import Path

import pytest
from unit.spark.scripted_server import ScriptedServer

from downrange.client.errors import BrokerUnreachableError
from downrange.protocol.command import Command, response
from downrange.spark.link import Link, TlsFiles

PASSWORD = "Pa55word"

pytestmark = pytest.mark.skipif(shutil.which("openssl") is None, reason="needs openssl for keys")


def a_certificate(folder: Path, name: str) -> tuple[Path, Path]:
    """A certificate for 127.0.0.1 and its key, which has a password."""
    certificate, key = folder / f"{name}.pem", folder / f"{name}.key"
    subprocess.run(
        [
            "openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1",
            "-days", "2", "-subj", f"/CN={name}", "-addext", "subjectAltName=IP:127.0.0.1",
            "-passout", f"pass:{PASSWORD}", "-keyout", str(key), "-out", str(certificate),
        ],
        check=True,
        capture_output=True,
        timeout=60,
    )  # fmt: skip
    return certificate, key


def answered(command: Command) -> list[Command]:
    return [response(command, 0, remark="over TLS")]


def test_with_and_without_a_file_to_check_by(tmp_path: Path) -> None:
    certificate, key = a_certificate(tmp_path, "server")
    other, _ = a_certificate(tmp_path, "other")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate, key, PASSWORD)
    with ScriptedServer(answered, context) as server:
        for files in (TlsFiles(), TlsFiles(trust_path=str(certificate))):
            link = Link(server.address, timeout_s=20.0, tls=files)
            assert link.ask(1, {}).remark == "over TLS"
            link.close()
        with pytest.raises(BrokerUnreachableError, match="certificate"):
            Link(server.address, timeout_s=20.0, tls=TlsFiles(trust_path=str(other)))
        with pytest.raises(BrokerUnreachableError, match="No such file"):
            Link(server.address, timeout_s=20.0, tls=TlsFiles(trust_path="/no/such/file"))


def test_a_server_that_asks_who_we_are(tmp_path: Path) -> None:
    certificate, key = a_certificate(tmp_path, "both")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate, key, PASSWORD)
    context.load_verify_locations(certificate)
    context.verify_mode = ssl.CERT_REQUIRED
    mine = TlsFiles(
        trust_path=str(certificate),
        certificate_path=str(certificate),
        key_path=str(key),
        key_password=PASSWORD,
    )
    assert PASSWORD not in repr(mine)
    with ScriptedServer(answered, context) as server:
        link = Link(server.address, timeout_s=20.0, tls=mine)
        assert link.ask(1, {}).code == 0
        link.close()
