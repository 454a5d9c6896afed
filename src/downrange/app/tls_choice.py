"""What options and environment variables say about TLS, before it becomes settings."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Final

from downrange.client.tls import TlsSettings

TLS_VARIABLE: Final = "DOWNRANGE_TLS"
_SWITCHES: Final = {"true": True, "1": True, "false": False, "0": False}


@dataclass(frozen=True, slots=True, kw_only=True)
class TlsChoice:
    """What the options of a command, or the environment, say about TLS; None: nothing."""

    tls: bool | None = None
    ca_file: str | None = None
    certificate_file: str | None = None
    key_file: str | None = None
    key_password: str | None = field(default=None, repr=False)
    server_name: str | None = None
    verify: bool | None = None

    def applied(self, base: TlsSettings | None) -> TlsSettings | None:
        """The settings with what was chosen; choosing a detail switches TLS on."""
        details: dict[str, str | bool | None] = {
            "ca_file": self.ca_file,
            "certificate_file": self.certificate_file,
            "key_file": self.key_file,
            "key_password": self.key_password,
            "server_name": self.server_name,
            "verify": self.verify,
        }
        given = {name: value for name, value in details.items() if value is not None}
        is_on = self.tls if self.tls is not None else bool(given) or base is not None
        if not is_on:
            return None
        if self.verify is False and self.ca_file is None:
            given["ca_file"] = ""  # the base may have one
        return replace(base or TlsSettings(), **given)  # type: ignore[arg-type]  # by its name


def tls_of_environment(environment: Mapping[str, str]) -> TlsChoice | None:
    """What DOWNRANGE_TLS and the variables that begin with DOWNRANGE_TLS_ say.

    `ValueError` for one that is neither true nor false.
    """

    def switch(name: str) -> bool | None:
        text = environment.get(name)
        if not text:
            return None
        if text.lower() not in _SWITCHES:
            raise ValueError(f"environment variable {name} is {text!r}; set it to true or false")
        return _SWITCHES[text.lower()]

    if not any(name.startswith(TLS_VARIABLE) for name in environment):
        return None
    return TlsChoice(
        tls=switch(TLS_VARIABLE),
        ca_file=environment.get(f"{TLS_VARIABLE}_CA"),
        certificate_file=environment.get(f"{TLS_VARIABLE}_CERT"),
        key_file=environment.get(f"{TLS_VARIABLE}_KEY"),
        key_password=environment.get(f"{TLS_VARIABLE}_KEY_PASSWORD"),
        server_name=environment.get(f"{TLS_VARIABLE}_SERVER_NAME"),
        verify=switch(f"{TLS_VARIABLE}_VERIFY"),
    )
