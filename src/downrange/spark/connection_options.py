"""Options that reading and writing share: where the cluster is, who we are, TLS."""

from typing import Final

from downrange.client.acl_signature import Credentials
from downrange.client.tls import TlsSettings
from downrange.spark.option_values import OptionError, OptionTexts, addresses, switch

_OF_CREDENTIALS: Final = ("accessKey", "secretKey", "securityToken")
_OF_TLS: Final = (
    "tlsTrustCertPath",
    "tlsCertPath",
    "tlsKeyPath",
    "tlsKeyPassword",
    "tlsServerName",
    "tlsVerify",
)


def name_servers(texts: OptionTexts) -> tuple[str, ...]:
    """The addresses of the name servers, which must be given."""
    if not texts.has("nameServers"):
        raise OptionError(
            "option 'nameServers' is missing: the addresses of the name servers, like "
            "127.0.0.1:9876, several with ; between"
        )
    return texts.value("nameServers", addresses, ())


def credentials(texts: OptionTexts) -> Credentials | None:
    """Who we say we are, if anybody."""
    access, secret = texts.text("accessKey"), texts.text("secretKey")
    if access and secret:
        return Credentials(access, secret, texts.text("securityToken"))
    for name in _OF_CREDENTIALS:
        if texts.has(name):
            raise OptionError(f"option {name!r} is of use only with 'accessKey' and 'secretKey'")
    return None


def tls_settings(texts: OptionTexts) -> TlsSettings | None:
    """How TLS connections are made; None for plain ones."""
    if not texts.value("useTls", switch, default=False):
        for name in _OF_TLS:
            if texts.has(name):
                raise OptionError(f"option {name!r} is of use only with 'useTls' true")
        return None
    trust, certificate, key, password, server_name, _ = (texts.text(name) for name in _OF_TLS)
    if (key or password) and not certificate:
        raise OptionError("options 'tlsKeyPath' and 'tlsKeyPassword' need 'tlsCertPath'")
    verify = texts.value("tlsVerify", switch, default=True)
    if trust and not verify:
        raise OptionError("option 'tlsTrustCertPath' is of no use with 'tlsVerify' false")
    return TlsSettings(
        ca_file=trust,
        certificate_file=certificate,
        key_file=key,
        key_password=password,
        server_name=server_name,
        verify=verify,
    )
