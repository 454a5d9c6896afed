"""What the pipeline finds out."""

from dataclasses import dataclass
from datetime import datetime


@dataclass(frozen=True, slots=True, order=True)
class Revenue:
    """A row of the result."""

    hour: datetime
    region: str
    orders: int
    units: int
    cents: int
