"""Senders that wait for the disk share a sync when they come close together."""

from downrange.broker.shared_sync import TURNS_MAX, SharedSync


def after_a_sync(waiting: int) -> SharedSync:
    shared = SharedSync()
    shared.begun()
    shared.ended(waiting)
    return shared


def test_the_first_sender_of_all_waits_for_nobody() -> None:
    assert SharedSync().is_time(1, 100)


def test_one_who_was_alone_waits_for_nobody() -> None:
    shared = after_a_sync(1)
    assert shared.is_time(1, 100)
    shared.begun()
    shared.ended(1)
    assert shared.is_time(1, 200)


def test_a_crowd_is_waited_for_while_it_comes() -> None:
    shared = after_a_sync(4)
    assert [shared.is_time(number, number * 100) for number in range(1, 5)] == [
        False, False, False, True,
    ]  # fmt: skip


def test_a_turn_that_brings_nobody_ends_the_wait() -> None:
    shared = after_a_sync(4)
    assert not shared.is_time(1, 100)
    assert not shared.is_time(2, 200)
    assert shared.is_time(2, 200)


def test_the_crowd_is_who_waited_last() -> None:
    shared = after_a_sync(4)
    shared.is_time(2, 200)
    shared.begun()
    shared.ended(2)
    assert not shared.is_time(1, 300)
    assert shared.is_time(2, 400)


def test_messages_whose_senders_do_not_wait_put_off_no_sync_for_ever() -> None:
    shared = after_a_sync(1_000)
    asked = 0
    while not shared.is_time(1, asked):
        asked += 1
    assert asked == TURNS_MAX - 1
    shared.begun()
    assert not shared.is_time(1, 10_000)
