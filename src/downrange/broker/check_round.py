"""One walk through the half messages that were there when it began, and what it noted."""

import logging
from collections import Counter
from dataclasses import dataclass, field

from downrange.broker.transaction_ends import EndedHalves

_log = logging.getLogger(__name__)

# Half messages that are done with behind a held one: each round walks through them again, so beyond
# this number, and if they are the majority, the held ones are put again behind them.
PASSED_COUNT_MAX = 2_000
GROUPS_LOGGED_MAX = 10


@dataclass(slots=True)
class CheckRound:
    """Owned by `TransactionCheck`; `half_offset` is the next half message to look at."""

    half_offset: int
    stop_offset: int
    ends: EndedHalves
    renews_held: bool = False
    asked_count: int = 0
    _held_offset: int | None = None  # of the first half message that was held
    _held_count: int = 0
    _passed_count: int = 0  # done with, behind the first that was held
    _unreachable: Counter[str] = field(default_factory=Counter)  # half messages per producer group

    @property
    def progress(self) -> tuple[int, int]:
        """Where the next round begins: in the half messages, and in the ends."""
        if self._held_offset is None:
            return self.half_offset, self.ends.done_offset
        # The next round meets the half messages behind the held one again, and needs their ends.
        return self._held_offset, self.ends.start_offset

    @property
    def is_clear(self) -> bool:
        """Whether no later round meets again what this one has met."""
        return self._held_offset is None

    @property
    def should_renew(self) -> bool:
        """Whether the next round should put held half messages again instead of holding them."""
        return self._passed_count > max(self._held_count, PASSED_COUNT_MAX)

    def pass_by(self) -> None:
        """The next half message is done with."""
        self.half_offset += 1
        self._passed_count += self._held_offset is not None

    def hold(self, group: str) -> bool:
        """Nobody can be asked about the next half message; False if it has to be put again."""
        self._unreachable[group] += 1
        if self.renews_held:
            return False
        self._held_count += 1
        if self._held_offset is None:
            self._held_offset = self.half_offset
        return True

    def report(self) -> None:
        """Log what the round did, a line per producer group that could not be asked."""
        if self.asked_count:
            _log.info("half messages asked for: %d", self.asked_count)
        for group, count in self._unreachable.most_common(GROUPS_LOGGED_MAX):
            _log.warning(
                "producer group %s: not connected, %d half messages wait to be checked",
                group,
                count,
            )
        more = len(self._unreachable) - GROUPS_LOGGED_MAX
        if more > 0:
            _log.warning("%d more producer groups with half messages are not connected", more)
