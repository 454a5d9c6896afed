"""Half-received requests cannot take more memory than the server has set aside for them."""

import logging
from collections import Counter

import pytest

from downrange.remoting.receive_budget import ReceiveBudget

MIB = 1 << 20
LIMIT = 128 * MIB
FRAME = 16 * MIB
READ = MIB // 4  # what a read brings at most


class Sender:
    """A connection in the middle of a request."""

    def __init__(self, name: str) -> None:
        self.address = name
        self.unsent_bytes = 0
        self.is_paused = False
        self.is_closed = False

    def pause_receiving(self) -> None:
        self.is_paused = True

    def resume_receiving(self) -> None:
        self.is_paused = False

    def abort(self) -> None:
        self.is_closed = True


class Server:
    """A budget, its time, and its senders."""

    def __init__(self, receive_s_max: float = 30) -> None:
        self.now_s = 0.0
        self.refusals: Counter[str] = Counter()
        self.budget = ReceiveBudget(LIMIT, receive_s_max, lambda: self.now_s, self.refusals)
        self.senders: list[Sender] = []
        self.held: dict[Sender, int] = {}

    def sender(self) -> Sender:
        sender = Sender(f"10.0.0.{len(self.senders)}:1")
        self.senders.append(sender)
        return sender

    def receive(self, sender: Sender, count: int) -> None:
        """So many bytes more of a 16 MiB request, unless it is not read."""
        if not sender.is_paused and not sender.is_closed:
            held = self.held[sender] = self.held.get(sender, 0) + count
            self.budget.note(sender, held, FRAME - held)

    def complete(self, sender: Sender) -> None:
        self.held.pop(sender, None)
        self.budget.release(sender)

    def pass_time(self, seconds: int) -> None:
        for _ in range(seconds):
            self.now_s += 1
            self.budget.sweep([one for one in self.senders if not one.is_closed])


def test_116_half_received_requests_hold_no_more_than_the_limit() -> None:
    server = Server()
    senders = [server.sender() for _ in range(116)]
    for _ in range(63):
        for sender in senders:
            server.receive(sender, READ)
            assert server.budget.total_bytes <= LIMIT
    assert not any(sender.is_closed for sender in senders), "pausing was enough"
    assert server.budget.paused_count > 100


def test_while_others_wait_those_that_do_not_send_are_closed_the_largest_first() -> None:
    server = Server()
    stalled = [server.sender() for _ in range(8)]
    for number, sender in enumerate(stalled):
        server.receive(sender, (8 + number) * MIB)
    honest = server.sender()
    server.receive(honest, 5 * MIB)
    paused = [honest.is_paused]
    server.pass_time(2)
    paused.append(honest.is_paused)
    assert paused == [True, False]
    assert not honest.is_closed
    assert [sender.is_closed for sender in stalled] == [False] * 4 + [True] * 4
    assert server.refusals == {"pressure": 4}
    while server.held[honest] < FRAME - MIB:
        server.receive(honest, MIB)
    server.complete(honest)
    assert not honest.is_closed


def test_many_that_make_progress_are_all_served_one_after_the_other() -> None:
    server = Server()
    senders = [server.sender() for _ in range(30)]
    done: set[Sender] = set()
    while len(done) < len(senders):
        before = sum(server.held.values()) + len(done) * FRAME
        for sender in senders:
            if sender not in done:
                server.receive(sender, READ)
                assert server.budget.total_bytes <= LIMIT
                if server.held.get(sender, 0) >= FRAME:
                    server.complete(sender)
                    done.add(sender)
        assert sum(server.held.values()) + len(done) * FRAME > before, "nobody may send"
        server.pass_time(1)
    assert not any(sender.is_closed for sender in senders)
    assert server.budget.total_bytes == 0


def test_a_request_that_does_not_get_complete_in_time_is_closed(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.WARNING)
    server = Server(receive_s_max=30)
    slow, small = server.sender(), server.sender()
    server.receive(slow, 10)
    server.budget.note(small, 10, 16 * 1024 - 10)
    closed = []
    for seconds in (31, 1, 1024):
        server.pass_time(seconds)
        closed.append((small.is_closed, slow.is_closed))
    # 30 s and 1 s for 16 KiB; 16 MiB have 1024 s more.
    assert closed == [(False, False), (True, False), (True, True)]
    assert server.refusals == {"slow": 2}
    assert server.budget.total_bytes == 0
    assert caplog.messages[0] == (
        "connection 10.0.0.1:1: closed with 10 bytes of a request: its request is incomplete after "
        "32 s"
    )


def test_time_for_which_a_sender_was_paused_is_not_counted_against_it() -> None:
    server = Server(receive_s_max=1)
    for _ in range(8):
        server.receive(server.sender(), 12 * MIB)
    late = server.sender()
    server.budget.note(late, 10, FRAME)
    paused = [late.is_paused]
    server.now_s += 10_000
    for sender in server.senders[:8]:
        server.complete(sender)
    paused.append(late.is_paused)
    assert paused == [True, False]
    server.pass_time(1000)
    assert not late.is_closed


def test_at_the_limit_the_connection_that_holds_most_is_closed_also_for_what_it_does_not_read() -> (
    None
):
    server = Server()
    reader, sender = server.sender(), server.sender()
    server.receive(sender, 8 * MIB)
    reader.unsent_bytes = 125 * MIB
    server.pass_time(1)
    assert reader.is_closed
    assert not sender.is_closed
    assert server.refusals == {"memory": 1}
    assert server.budget.total_bytes == 8 * MIB


def test_when_all_are_paused_one_has_to_go() -> None:
    server = Server()
    reader = server.sender()
    reader.unsent_bytes = 110 * MIB
    server.pass_time(1)
    senders = [server.sender() for _ in range(3)]
    for sender in senders:
        server.receive(sender, 4 * MIB)
    assert server.budget.paused_count == 3
    server.pass_time(1)
    assert reader.is_closed
    assert not any(sender.is_paused or sender.is_closed for sender in senders)


def test_a_peer_that_has_caught_up_is_counted_no_more() -> None:
    server = Server()
    reader = server.sender()
    server.budget.note_unsent(reader, 8 * MIB)
    server.budget.note_unsent(reader, 9 * MIB)
    assert server.budget.total_bytes == 9 * MIB
    server.budget.note_unsent(reader, 0)
    assert server.budget.total_bytes == 0
    server.budget.note_unsent(reader, 8 * MIB)
    server.budget.forget(reader)
    assert server.budget.total_bytes == 0
