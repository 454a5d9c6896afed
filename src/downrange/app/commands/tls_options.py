"""The options for TLS that every command on a cluster has."""

from typing import Annotated, Final, cast

import typer

from downrange.app.tls_choice import TlsChoice

TlsOption = Annotated[
    bool | None, typer.Option("--tls/--no-tls", help="Encrypt connections and verify servers.")
]
TlsCaOption = Annotated[
    str | None, typer.Option("--tls-ca", metavar="FILE", help="Trust these CAs, not the system's.")
]
TlsCertOption = Annotated[
    str | None, typer.Option("--tls-cert", metavar="FILE", help="Certificate of this client.")
]
TlsKeyOption = Annotated[
    str | None, typer.Option("--tls-key", metavar="FILE", help="Its key, if in a file of its own.")
]
TlsServerNameOption = Annotated[
    str | None,
    typer.Option("--tls-server-name", metavar="NAME", help="Name in the servers' certificates."),
]
TlsVerifyOption = Annotated[
    bool | None, typer.Option("--tls-verify/--no-tls-verify", help="Verify servers or not.")
]
TLS_OPTIONS: Final = {
    "tls": (TlsOption, None),
    "tls_ca": (TlsCaOption, None),
    "tls_cert": (TlsCertOption, None),
    "tls_key": (TlsKeyOption, None),
    "tls_server_name": (TlsServerNameOption, None),
    "tls_verify": (TlsVerifyOption, None),
}
"""The options of every command on a cluster. There is none for the password of the key, which
everybody on the machine could read: that is DOWNRANGE_TLS_KEY_PASSWORD, or stands in a context."""


def tls_choice(given: dict[str, object]) -> TlsChoice:
    """What the options say about TLS, taken out of the arguments."""
    return TlsChoice(
        tls=cast("bool | None", given.pop("tls")),
        ca_file=cast("str | None", given.pop("tls_ca")),
        certificate_file=cast("str | None", given.pop("tls_cert")),
        key_file=cast("str | None", given.pop("tls_key")),
        server_name=cast("str | None", given.pop("tls_server_name")),
        verify=cast("bool | None", given.pop("tls_verify")),
    )
