"""TLS for connections to name servers and brokers: whom to trust, who we are, and clear errors.

The server is verified, its certificate chain and its name, unless `verify` is off. The Java client
verifies nothing unless it is told to (tls.client.authServer).
"""

import logging
import ssl
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Final

from downrange.client.errors import RocketMQError
from downrange.protocol.hosts import format_address
from downrange.remoting.network import ProtocolFactory, TcpNetwork

_log = logging.getLogger(__name__)

_EXPIRED: Final = (9, 10)  # not yet valid, expired: codes of OpenSSL's X509_V_ERR_…
_WRONG_NAME: Final = (62, 63, 64)  # host name, email, IP address
_PLAIN_TEXT: Final = frozenset(
    {"WRONG_VERSION_NUMBER", "RECORD_LAYER_FAILURE", "UNEXPECTED_EOF_WHILE_READING", "HTTP_REQUEST"}
)


class TlsSettingsError(RocketMQError):
    """TLS settings that contradict each other, or name a file that cannot be used."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TlsSettings:
    """How TLS connections are made. All files are PEM. Picklable; the password is not shown."""

    ca_file: str = ""  # certificates to trust; empty: those of the system
    certificate_file: str = ""  # who we are, if servers ask
    key_file: str = ""  # empty: the key is in the certificate file
    key_password: str = field(default="", repr=False)
    server_name: str = ""  # the name in the certificates; empty: the host of each address
    verify: bool = True  # off: encrypted, but to whoever answers

    def __post_init__(self) -> None:
        if (self.key_file or self.key_password) and not self.certificate_file:
            raise TlsSettingsError(
                "a TLS key file or key password is set without a certificate file; set that too"
            )
        if self.ca_file and not self.verify:
            raise TlsSettingsError(
                f"TLS CA file {self.ca_file!r} is of no use while verification is off; "
                f"leave one of them out"
            )

    def context(self) -> ssl.SSLContext:
        """What `ssl` needs; `TlsSettingsError` names a file that cannot be used."""
        if self.ca_file:
            _check_readable("CA", self.ca_file)
        try:
            context = ssl.create_default_context(cafile=self.ca_file or None)
        except (OSError, ValueError) as error:
            raise TlsSettingsError(
                f"TLS CA file {self.ca_file!r} holds no PEM certificates: {error}"
            ) from error
        if not self.verify:
            context.check_hostname = False
            context.verify_mode = ssl.CERT_NONE
            _warn_unverified()
        if self.certificate_file:
            self._load_certificate(context)
        return context

    def explained(self, host: str, port: int, error: OSError) -> OSError:
        """The error of a connection that was not made, with what to look at."""
        server = format_address(host, port)
        if isinstance(error, ssl.SSLCertVerificationError):
            return ConnectionRefusedError(self._unverified(server, host, error))
        if isinstance(error, ssl.SSLError) and error.reason in _PLAIN_TEXT:
            return ConnectionRefusedError(
                f"{server} does not speak TLS; switch TLS off here, or on at the server "
                f"(servers of downrange have no TLS)"
            )
        if isinstance(error, ssl.SSLError):
            return ConnectionRefusedError(f"no TLS connection to {server}: {error}")
        if isinstance(error, ConnectionResetError):
            return ConnectionResetError(
                f"{server} closed the connection during the TLS handshake; does it speak TLS?"
            )
        return error

    def _unverified(self, server: str, host: str, error: ssl.SSLCertVerificationError) -> str:
        if error.verify_code in _WRONG_NAME:
            name = self.server_name or host
            return (
                f"the TLS certificate of {server} is not valid for {name!r}; set the TLS server "
                f"name to a name that is in the certificate"
            )
        if error.verify_code in _EXPIRED:
            return (
                f"the TLS certificate of {server} is not valid now: {error.verify_message}; renew "
                f"it, or correct the clock of this machine"
            )
        trusted = f"TLS CA file {self.ca_file!r}" if self.ca_file else "the CAs of the system"
        return (
            f"the TLS certificate of {server} is not trusted by {trusted}: "
            f"{error.verify_message}; set the TLS CA file to the certificate of the CA that "
            f"signed it"
        )

    def _load_certificate(self, context: ssl.SSLContext) -> None:
        _check_readable("certificate", self.certificate_file)
        if self.key_file:
            _check_readable("key", self.key_file)
        try:
            # Without a password of ours OpenSSL would ask on the terminal.
            context.load_cert_chain(
                self.certificate_file, self.key_file or None, lambda: self.key_password
            )
        except (OSError, ValueError) as error:
            raise TlsSettingsError(
                f"TLS certificate file {self.certificate_file!r} and key file "
                f"{self.key_file or self.certificate_file!r} cannot be used: {error}; check that "
                f"they belong together and that the key password is right"
            ) from error


class TlsNetwork(TcpNetwork):
    """TCP connections with TLS."""

    def __init__(self, settings: TlsSettings) -> None:
        super().__init__(tls=settings.context(), server_name=settings.server_name)
        self._settings = settings

    async def connect(self, host: str, port: int, factory: ProtocolFactory) -> None:
        """Connect and shake hands; an error says which setting to look at."""
        try:
            await super().connect(host, port, factory)
        except OSError as error:
            raise self._settings.explained(host, port, error) from error


def client_network(tls: TlsSettings | None = None) -> TcpNetwork:
    """The network of a client, with TLS or without."""
    return TcpNetwork() if tls is None else TlsNetwork(tls)


def _check_readable(what: str, path: str) -> None:
    try:
        with Path(path).open("rb"):
            pass
    except OSError as error:
        raise TlsSettingsError(
            f"TLS {what} file {path!r} cannot be read: {error.strerror}"
        ) from error


@cache  # once per process
def _warn_unverified() -> None:
    _log.warning(
        "TLS: verification of servers is off, so connections are encrypted but anybody may answer; "
        "set a CA file and switch it on"
    )
