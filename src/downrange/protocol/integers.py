"""Integers as wide as Java's, so that a value that was read can also be written and stored."""

from typing import Annotated, Final, TypeAlias

import msgspec

INT32_MIN: Final = -(1 << 31)
INT32_MAX: Final = (1 << 31) - 1
INT64_MIN: Final = -(1 << 63)
INT64_MAX: Final = (1 << 63) - 1

Int32: TypeAlias = Annotated[int, msgspec.Meta(ge=INT32_MIN, le=INT32_MAX)]
Int64: TypeAlias = Annotated[int, msgspec.Meta(ge=INT64_MIN, le=INT64_MAX)]
