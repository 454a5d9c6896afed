"""Which client library speaks: a byte in a binary header, the name as text in a JSON header."""

from enum import IntEnum, unique
from typing import Final


@unique
class LanguageCode(IntEnum):
    """The languages RocketMQ knows by number and name."""

    JAVA = 0
    CPP = 1
    DOTNET = 2
    PYTHON = 3
    DELPHI = 4
    ERLANG = 5
    RUBY = 6
    OTHER = 7
    HTTP = 8
    GO = 9
    PHP = 10
    OMS = 11
    RUST = 12
    NODE_JS = 13


_BY_NUMBER: Final = {language.value: language for language in LanguageCode}
_BY_NAME: Final = {language.name: language for language in LanguageCode}


def language_of_number(number: int) -> LanguageCode:
    """Give the language of a binary header; one we do not know yet is OTHER, never an error."""
    return _BY_NUMBER.get(number, LanguageCode.OTHER)


def language_of_name(name: str) -> LanguageCode:
    """Give the language of a JSON header; one we do not know yet is OTHER, never an error."""
    return _BY_NAME.get(name, LanguageCode.OTHER)
