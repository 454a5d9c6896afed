"""What must be true of every history; each property is one function that yields what is wrong.

To add one: write a function that takes a `History` and yields a text for each violation, put it
into PROPERTIES, and plant a bug in test_cluster.py that it finds.
"""

from collections import defaultdict
from collections.abc import Callable, Iterator

from simulation.history import History, Sent
from simulation.ledger import ASYNC_WINDOW_S

HAND_OVER_S_MAX = 60.0  # a rebalance every 20 s, a lock of 60 s given up when its owner is gone
IDLE_S_MAX = 130.0  # a connection that died unnoticed is closed after two minutes of silence
CLOCK_GRAIN_S = 0.002
COMMITS_WHAT_IS_GIVEN_BACK = {"orders"}  # in order a message stays where it is until it succeeds


def nothing_acknowledged_is_lost(history: History) -> Iterator[str]:
    """Every message that a broker took is handled in the end, as flush mode and fault allow."""
    handled = history.first_handled()
    for one in history.sent:
        if is_promised(history, one) and one.body not in handled:
            yield f"{one.body}, acknowledged at {one.at_s:.3f} s in {one.place}, was never handled"


def order_is_kept_per_queue(history: History) -> Iterator[str]:
    """Messages of one queue of an orderly group are first handled in the order of their offsets."""
    last: dict[tuple[str, str, int], tuple[int, str]] = {}
    seen: set[str] = set()
    for one in history.handled:
        broker, topic, queue_id, offset = one.place
        if not topic.startswith("steps") or one.body in seen or history.may_have_lost(broker):
            continue
        seen.add(one.body)
        highest, body = last.get((broker, topic, queue_id), (-1, ""))
        if offset < highest:
            yield f"{one.body} at {one.place} was handled after {body} at {highest}"
        last[broker, topic, queue_id] = max((highest, body), (offset, one.body))


def offsets_are_never_ahead(history: History) -> Iterator[str]:
    """What lies below a committed offset has been handled before, or was given back."""
    handled_s: dict[tuple[str, str, int], dict[int, float]] = defaultdict(dict)
    for (broker, topic, queue_id, offset), at_s in history.given_back.items():
        if topic in COMMITS_WHAT_IS_GIVEN_BACK:
            handled_s[broker, topic, queue_id][offset] = at_s
    for one in history.handled:
        broker, topic, queue_id, offset = one.place
        times = handled_s[broker, topic, queue_id]
        times[offset] = min(times.get(offset, one.at_s), one.at_s)
    stored: dict[tuple[str, str, int], dict[int, str]] = defaultdict(dict)
    for sent in history.sent:
        broker, topic, queue_id, offset = sent.place
        if not sent.due_s and not sent.body.startswith("half"):
            stored[broker, topic, queue_id][offset] = sent.body
    for mark in history.committed:
        queue_key = (mark.broker, mark.topic, mark.queue_id)
        if history.may_have_lost(mark.broker):
            continue
        times = handled_s[queue_key]
        for offset, body in stored[queue_key].items():
            if offset < mark.offset and times.get(offset, mark.at_s + 1) > mark.at_s:
                yield (
                    f"{mark.broker} {mark.topic} {mark.queue_id} is committed up to {mark.offset} "
                    f"at {mark.at_s:.3f} s, but {body} at {offset} was not handled by then"
                )


def delayed_messages_are_not_early(history: History) -> Iterator[str]:
    """A delayed message is not handled before its time, unless a broker's clock was moved."""
    due = {one.body: one for one in history.sent if one.due_s}
    moved = {one.target for one in history.struck if one.fault == "clock jump"}
    for one in history.handled:
        sent = due.get(one.body)
        if sent is None or sent.place[0] in moved:
            continue
        if one.at_s < sent.due_s - CLOCK_GRAIN_S:
            yield f"{one.body} was handled {sent.due_s - one.at_s:.3f} s too early"


def transactions_are_decided_once(history: History) -> Iterator[str]:
    """Only committed messages are handled, each from one place unless something delayed its end.

    A broker writes the ends of transactions together, a moment later; one that dies in between
    asks the producer again, and commits again. So does one that has asked twice before it hears.
    """
    excuses = {"crash", "power cut", "partition", "delay", "drop", "reordering", "slow disk"}
    is_excused = any(one.fault in excuses for one in history.struck)
    for body, handled in history.handled_places().items():
        if not body.startswith("half"):
            continue
        if history.verdicts.get(body) != "commit":
            yield f"{body} was handled and its verdict is {history.verdicts.get(body, 'unknown')}"
        places = {one.place for one in handled if one.is_first_try}
        if len(places) > 1 and not is_excused:
            yield f"{body} was committed more than once: {sorted(places)}"


def hand_over_meets_its_deadline(history: History) -> Iterator[str]:
    """Once the faults are over, nothing waits longer than the deadline for a consumer."""
    handled = history.first_handled()
    has_dropped = any(one.fault == "drop" for one in history.struck)
    patience_s = HAND_OVER_S_MAX + (IDLE_S_MAX if has_dropped else 0.0)
    for one in history.sent:
        done = handled.get(one.body)
        if done is None or one.body.startswith("half"):
            continue
        latest_s = max(one.at_s, one.due_s, history.quiet_since_s()) + patience_s
        if done.at_s > latest_s:
            late_s = done.at_s - latest_s
            yield f"{one.body} waited until {done.at_s:.3f} s, {late_s:.3f} s too long"


def is_promised(history: History, sent: Sent) -> bool:
    """Whether the flush mode promises that this message survived every power cut of its broker."""
    if sent.body.startswith("half") and history.verdicts.get(sent.body) != "commit":
        return False
    if history.is_sync:
        return True
    return all(sent.at_s <= cut_s - ASYNC_WINDOW_S for cut_s in history.power_cuts(sent.place[0]))


PROPERTIES: dict[str, Callable[[History], Iterator[str]]] = {
    function.__name__.replace("_", " "): function
    for function in (
        nothing_acknowledged_is_lost,
        order_is_kept_per_queue,
        offsets_are_never_ahead,
        delayed_messages_are_not_early,
        transactions_are_decided_once,
        hand_over_meets_its_deadline,
    )
}
