"""Queue offsets that a record claims, against those that were pulled."""

import pytest
from unit.client.received import offsets, received

from downrange.client.pull_offsets import reject_misplaced
from downrange.client.record_reader import ReadRecords

FAR = 1 << 60


@pytest.mark.parametrize(
    ("claimed", "kept", "rejected"),
    [
        ([5, 6, 7], [5, 6, 7], []),
        ([5, 7, 9], [5, 7, 9], []),  # a filter leaves gaps
        ([3, 4, 5], [3, 4, 5], []),  # an inner batch that starts in front of the pull
        ([], [], []),
        ([5, 6 + FAR, 7], [5, 7], [6]),
        ([5 + FAR, 6, 7], [6, 7], [5]),
        ([5, 6, 7 + FAR], [5, 6], [7]),
        ([5, 5, 7], [5, 7], [6]),
        ([5, -1, 7], [5, 7], [6]),
    ],
)
def test_a_claimed_offset_outside_the_pull_makes_a_message_invalid(
    claimed: list[int], kept: list[int], rejected: list[int]
) -> None:
    read = ReadRecords([received(offset) for offset in claimed], [])
    reject_misplaced(read, 5, 10)
    assert offsets(read.messages) == kept
    assert [one.queue_offset for one in read.invalid] == rejected
