"""Reading the text of options: each reader takes a text and gives a value or says what is wrong."""

from collections.abc import Callable, Mapping
from typing import Final, TypeVar

from downrange.model.names import check_group, check_topic
from downrange.protocol.errors import ProtocolError
from downrange.protocol.hosts import parse_address
from downrange.spark.columns import ALL_COLUMNS, INVALID_REASON, KNOWN_COLUMNS
from downrange.spark.invalid_records import InvalidMessages

_SEPARATORS: Final = (";", ",")
T = TypeVar("T")


class OptionError(ValueError):
    """An option that is unknown, missing or wrong; the text names it and says what is allowed."""


def switch(text: str) -> bool:
    """true or false."""
    lowered = text.strip().lower()
    if lowered not in {"true", "false"}:
        raise ValueError(f"{text!r} is neither true nor false")
    return lowered == "true"


def whole(least: int, most: int) -> Callable[[str], int]:
    """A whole number within bounds."""

    def read(text: str) -> int:
        stripped = text.strip()
        if not (stripped.isascii() and stripped.isdecimal()) or len(stripped) > len(str(most)):
            raise ValueError(f"{text!r} is no whole number between {least} and {most}")
        number = int(stripped)
        if not least <= number <= most:
            raise ValueError(f"{number} is not between {least} and {most}")
        return number

    return read


def seconds_of_ms(least: int, most: int) -> Callable[[str], float]:
    """Milliseconds in the text, seconds as the value."""
    read = whole(least, most)
    return lambda text: read(text) / 1000


def names(text: str) -> tuple[str, ...]:
    """Names with commas between them, each once, in their order."""
    found = dict.fromkeys(part.strip() for part in text.split(",") if part.strip())
    if not found:
        raise ValueError("it names nothing; give names with commas between them")
    return tuple(found)


def topic_name(text: str) -> str:
    """The name of a topic."""
    check_topic(text)
    return text


def topic_names(text: str) -> tuple[str, ...]:
    """Names of topics with commas between them."""
    return tuple(topic_name(name) for name in names(text))


def group_name(text: str) -> str:
    """The name of a group."""
    check_group(text)
    return text


def invalid_messages(text: str) -> InvalidMessages:
    """What becomes of messages that cannot be decoded."""
    try:
        return InvalidMessages(text.strip().lower())
    except ValueError:
        raise ValueError(f"{text!r} is neither fail nor null") from None


def column_names(text: str) -> tuple[str, ...]:
    """Columns with commas between them, found without regard to case, as Spark does."""
    by_lower = {name.lower(): name for name in KNOWN_COLUMNS}
    for name in names(text):
        if name.lower() not in by_lower:
            raise ValueError(f"{name!r} is no column; there are {', '.join(KNOWN_COLUMNS)}")
    return tuple(dict.fromkeys(by_lower[name.lower()] for name in names(text)))


def addresses(text: str) -> tuple[str, ...]:
    """Addresses with ; or , between them."""
    for separator in _SEPARATORS[1:]:
        text = text.replace(separator, _SEPARATORS[0])
    found = dict.fromkeys(part.strip() for part in text.split(_SEPARATORS[0]) if part.strip())
    for address in found:
        try:
            parse_address(address)
        except ProtocolError as error:
            raise ValueError(f"{error}; give addresses like 127.0.0.1:9876") from None
    if not found:
        raise ValueError("it names no address; give addresses like 127.0.0.1:9876")
    return tuple(found)


class OptionTexts:
    """The options of one read, asked for by name without regard to case, as Spark does."""

    def __init__(self, options: Mapping[str, str], known: Mapping[str, str], what: str) -> None:
        self._texts = {name.lower(): value for name, value in options.items()}
        for name in options:
            if name.lower() not in known:
                raise OptionError(
                    f"option {name!r} is unknown for {what}; there are "
                    f"{', '.join(sorted(known.values(), key=str.lower))}"
                )

    def has(self, name: str) -> bool:
        """Whether the option is given."""
        return name.lower() in self._texts

    def text(self, name: str, default: str = "") -> str:
        """The option as it is."""
        return self._texts.get(name.lower(), default)

    def value(self, name: str, read: Callable[[str], T], default: T) -> T:
        """The option as its reader understands it."""
        text = self._texts.get(name.lower())
        if text is None:
            return default
        try:
            return read(text)
        except ValueError as error:
            raise OptionError(f"option {name!r}: {error}") from None


def shown_columns(texts: OptionTexts, invalid: InvalidMessages) -> tuple[str, ...]:
    """The columns of option `fields`; by default with the reason if invalid messages are shown."""
    default = ALL_COLUMNS
    if invalid is InvalidMessages.NULL:
        default = (*ALL_COLUMNS, INVALID_REASON)
    return texts.value("fields", column_names, default)
