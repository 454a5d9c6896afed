"""Single brokers: what they are doing, and their settings."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from downrange.admin.requests import Requests, read_body
from downrange.client.errors import RocketMQError
from downrange.protocol.bodies.topics import KvTable
from downrange.protocol.request_codes import RequestCode
from downrange.runtime.property_text import (
    PropertyTextError,
    read_properties,
    write_properties,
)

_DURATION: Final = re.compile(
    r"\[ (\d+) days, (\d+) hours, (\d+) minutes, (\d+) seconds \]", re.ASCII
)


@dataclass(frozen=True, slots=True)
class BrokerFacts:
    """What a broker says about itself, under RocketMQ's keys; what is missing or odd is None."""

    table: Mapping[str, str]

    @property
    def version(self) -> str:
        """Its release, such as V5_5_0."""
        return self.table.get("brokerVersionDesc", "?")

    @property
    def put_tps(self) -> float:
        """Messages it takes a second, over the last ten."""
        return self._first_number("putTps")

    @property
    def get_tps(self) -> float:
        """Messages it hands out a second, over the last ten."""
        return self._first_number("getTransferredTps")

    @property
    def disk_ratio(self) -> float | None:
        """How full the disk of its log is, from 0 to 1; -1 is what Apache says of no disk."""
        try:
            ratio = float(self.table.get("commitLogDiskRatio", ""))
        except ValueError:
            return None
        return ratio if ratio >= 0 else None

    @property
    def registration_clash(self) -> str | None:
        """Why a name server refuses this broker, or which other one has its name and id."""
        return self.table.get("registrationClash")

    @property
    def not_ready(self) -> str | None:
        """Why clients are not served, as its `/readyz` says it; only ours tell."""
        return self.table.get("notReady")

    @property
    def store_damage(self) -> str | None:
        """What the scrubber of the broker has found; only of downrange brokers."""
        return self.table.get("storeDamage")

    @property
    def clock_ms(self) -> int | None:
        """The time of its clock when it answered, to the second."""
        uptime_s = self.uptime_s
        boot = self.table.get("bootTimestamp", "")
        if uptime_s is None or not boot.isdecimal():
            return None
        return int(boot) + 1000 * uptime_s

    @property
    def uptime_s(self) -> int | None:
        """For how long it has been running."""
        parts = _DURATION.fullmatch(self.table.get("runtime", ""))
        if parts is None:
            return None
        days, hours, minutes, seconds = (int(part) for part in parts.groups())
        return ((days * 24 + hours) * 60 + minutes) * 60 + seconds

    def _first_number(self, key: str) -> float:
        text = self.table.get(key, "").split(" ")[0]
        try:
            return float(text)
        except ValueError:
            return 0.0


class Brokers:
    """Asks and changes brokers by address."""

    def __init__(self, requests: Requests) -> None:
        self._requests = requests

    async def facts(self, address: str) -> BrokerFacts:
        """What a broker is doing."""
        answer = await self._requests.ask(address, RequestCode.GET_BROKER_RUNTIME_INFO)
        return BrokerFacts(dict(sorted(read_body(KvTable, answer).table.items())))

    async def config(self, address: str) -> dict[str, str]:
        """All settings of a broker."""
        answer = await self._requests.ask(address, RequestCode.GET_BROKER_CONFIG)
        try:
            found = read_properties(answer.body or b"", f"settings of {address}")
        except PropertyTextError as error:
            raise RocketMQError(f"the answer cannot be read: {error}") from error
        return {entry.key: entry.value for entry in sorted(found, key=lambda one: one.key)}

    async def change_config(self, address: str, changes: Mapping[str, str]) -> str:
        """Change settings of a running broker; what it remarks, if anything."""
        answer = await self._requests.ask(
            address, RequestCode.UPDATE_BROKER_CONFIG, body=write_properties(changes)
        )
        return answer.remark or ""
