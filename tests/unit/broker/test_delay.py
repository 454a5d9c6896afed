"""Delayed messages come when their level says, in order, once, whatever happens in between."""

from pathlib import Path

from golden import captured
from unit.broker.bench import Bench, captured_records, put_captured, without_place

from downrange.broker.delay import LEVEL_BATCH_MAX, LOOK_MS_MAX, STEP_BACK_MS_MAX, DelayedDelivery
from downrange.broker.delay_table import DelayTable
from downrange.model.names import HALF_TOPIC, SCHEDULE_TOPIC
from downrange.protocol.delay_levels import DelayLevels
from downrange.protocol.properties import decode_properties
from downrange.protocol.record import Record
from downrange.store.offset_tables import delay_offsets_file
from downrange.testing.clock import ManualClock

LEVEL_18_MS = 7_200_000


def table_of(bench: Bench) -> DelayTable:
    """The offsets as the file has them."""
    bench.store.settings.config_path.mkdir(exist_ok=True)
    file = delay_offsets_file(bench.disk, bench.store.settings.config_path)
    table = DelayTable(file, bench.clock)
    table.load()
    return table


def delivery(
    bench: Bench, levels: str | None = None, table: DelayTable | None = None
) -> DelayedDelivery:
    delay = DelayedDelivery(
        bench.store,
        bench.writer,
        DelayLevels.parse(levels) if levels else DelayLevels.parse(),
        table or table_of(bench),
        bench.stats,
        bench.clock,
        bench.call_later,
    )
    bench.store.add_listener(delay.on_arrival)
    delay.start()
    bench.pass_time(0)
    return delay


def put(bench: Bench, body: bytes, level: int, topic: str = "T", properties: bytes = b"") -> None:
    text = properties + b"DELAY\x01%d\x02" % level
    bench.writer.put(topic, 2, body, text, 0, 7, 1234, bytes(8), 3)
    bench.settle()


def bodies(bench: Bench, topic: str = "T") -> list[bytes]:
    return [record.body for record in bench.records(topic, 2)]


def test_a_message_comes_when_its_level_says_and_not_before(tmp_path: Path) -> None:
    bench = Bench(tmp_path)
    delivery(bench)
    put(bench, b"one", 1)
    bench.pass_time(999)
    assert bodies(bench) == []
    bench.pass_time(1)
    (record,) = bench.records("T", 2)
    assert record[:2] == (2, 7)
    assert (record.body, record.born_timestamp, record.reconsume_times) == (b"one", 1234, 3)
    assert decode_properties(record.properties) == {
        "DELAY": "1",
        "REAL_TOPIC": "T",
        "REAL_QID": "2",
    }
    assert bench.stats.put_by_topic["T"].count == 1


def test_what_is_delivered_has_the_bytes_that_rocketmq_delivers(tmp_path: Path) -> None:
    records = list(captured_records())
    waiting = [r for r in records if r.topic == SCHEDULE_TOPIC.encode() and r.queue_id in {0, 2}]
    delivered = {_key(r): r for r in records if b"REAL_TOPIC" in r.properties and not _waits(r)}
    bench = Bench(tmp_path)
    delivery(bench)
    compared = 0
    for record in waiting:
        put_captured(bench, record)
        bench.pass_time(10_000)
        place = decode_properties(record.properties)
        ours = bench.records(place["REAL_TOPIC"], int(place["REAL_QID"]))[-1]
        theirs = delivered.get(_key(ours))
        if theirs is not None:  # the broker was stopped before the last ones were due
            assert without_place(ours) == without_place(theirs)
            compared += 1
    assert compared >= 10


def test_messages_of_a_level_stay_in_order_and_levels_do_not_wait_for_each_other(
    tmp_path: Path,
) -> None:
    bench = Bench(tmp_path)
    delivery(bench)
    for number in range(3):
        put(bench, b"slow %d" % number, 2)
        put(bench, b"fast %d" % number, 1)
        bench.pass_time(10)
    bench.pass_time(2_000)
    assert bodies(bench) == [b"fast 0", b"fast 1", b"fast 2"]
    bench.pass_time(4_000)
    assert bodies(bench)[3:] == [b"slow 0", b"slow 1", b"slow 2"]


def test_a_message_that_comes_earlier_than_all_others_wakes_earlier(tmp_path: Path) -> None:
    bench = Bench(tmp_path)
    delivery(bench)
    put(bench, b"late", 18)
    assert bench.next_timer_ms == LOOK_MS_MAX
    bench.pass_time(500)
    put(bench, b"soon", 1)
    assert bench.next_timer_ms == 1_000
    bench.pass_time(1_000)
    assert bodies(bench) == [b"soon"]


def test_cursors_survive_a_restart(tmp_path: Path) -> None:
    bench = Bench(tmp_path)
    table = table_of(bench)
    delay = delivery(bench, table=table)
    for number in range(3):
        put(bench, b"%d" % number, 1)
        bench.pass_time(400)
    assert bodies(bench) == [b"0"]
    delay.stop()
    bench.settle()
    delay.settle()
    table.save()
    bench.store.close()

    again = Bench(tmp_path, bench.clock)
    again.clock.advance(60_000)
    delivery(again)
    again.pass_time(0)
    assert bodies(again) == [b"0", b"1", b"2"]


def test_a_cursor_is_noted_only_when_what_it_has_passed_is_durable(tmp_path: Path) -> None:
    bench = Bench(tmp_path)
    table = table_of(bench)
    delay = delivery(bench, table=table)
    put(bench, b"one", 1)
    bench.clock.advance(1_000)
    bench.run_timer()
    delay.settle()
    dirty = [table.is_dirty]
    bench.settle()
    delay.settle()
    dirty.append(table.is_dirty)
    table.save()
    assert table_of(bench).to_file() == table.to_file()
    assert table.to_file().offsets == {1: 1}
    delay.settle()
    dirty.append(table.is_dirty)
    assert dirty == [False, True, False]


def test_a_message_that_cannot_be_put_is_tried_again_and_nothing_passes_it(tmp_path: Path) -> None:
    bench = Bench(tmp_path)
    delivery(bench)
    put(bench, b"one", 1)
    put(bench, b"two", 1)
    bench.fill_disk(is_full=True)
    bench.pass_time(1_500)
    assert bodies(bench) == []
    bench.fill_disk(is_full=False)
    bench.pass_time(100)
    assert bodies(bench) == [b"one", b"two"]


def test_a_turn_is_bounded(tmp_path: Path) -> None:
    bench = Bench(tmp_path)
    delivery(bench)
    for number in range(LEVEL_BATCH_MAX + 5):
        put(bench, b"%d" % number, 1)
    bench.clock.advance(1_000)
    bench.run_timer()
    bench.settle()
    assert len(bodies(bench)) == LEVEL_BATCH_MAX
    assert bench.next_timer_ms == 0
    bench.pass_time(0)
    assert len(bodies(bench)) == LEVEL_BATCH_MAX + 5


def test_a_shorter_table_of_levels_delivers_at_once_what_would_wait_too_long(
    tmp_path: Path,
) -> None:
    bench = Bench(tmp_path)
    put(bench, b"two hours", 18)
    delivery(bench, levels=" ".join(["1s"] * 18))
    assert bodies(bench) == [b"two hours"]


def test_a_delayed_half_message_is_dropped(tmp_path: Path) -> None:
    bench = Bench(tmp_path)
    delivery(bench)
    put(bench, b"half", 1, HALF_TOPIC)
    put(bench, b"whole", 1)
    bench.pass_time(1_000)
    assert bodies(bench) == [b"whole"]
    assert bodies(bench, HALF_TOPIC) == []


def test_a_record_that_does_not_say_where_to_is_passed(tmp_path: Path) -> None:
    bench = Bench(tmp_path)
    delivery(bench)
    bench.store.append(SCHEDULE_TOPIC, 0, b"lost", b"DELAY\x011\x02")
    put(bench, b"found", 1)
    bench.pass_time(1_000)
    assert bodies(bench) == [b"found"]


def test_a_damaged_body_is_not_made_to_look_sound(tmp_path: Path) -> None:
    bench = Bench(tmp_path)
    delivery(bench)
    put(bench, b"damaged", 1)
    put(bench, b"sound", 1)
    (view,) = bench.store.read(SCHEDULE_TOPIC, 0, 0, 1).views
    log = next((tmp_path / "commitlog").iterdir())
    at = log.read_bytes().index(b"damaged")
    del view
    with log.open("r+b") as file:
        file.seek(at)
        file.write(b"dAmaged")
    bench.pass_time(1_000)
    assert bodies(bench) == [b"sound"]


def test_a_store_of_rocketmq_goes_on_where_its_broker_stopped(tmp_path: Path) -> None:
    captured.restore_store("clean", tmp_path)
    last_ms = max(record.store_timestamp for record in captured_records())
    bench = Bench(tmp_path, ManualClock(last_ms))
    before = [record.body for record in bench.all_records("orders")]
    delivery(bench)
    bench.pass_time(LEVEL_18_MS)
    after = [record.body for record in bench.all_records("orders")]
    waiting = [r.body for r in captured_records() if _waits(r) and r.queue_id == 17]
    assert sorted(after) == sorted(before + waiting)


def _waits(record: Record) -> bool:
    return record.topic == SCHEDULE_TOPIC.encode()


def _key(record: Record) -> tuple[bytes, str, int]:
    return record.topic, decode_properties(record.properties)["UNIQ_KEY"], record.born_timestamp


def test_a_clock_that_is_set_back_a_little_delivers_nothing_early(tmp_path: Path) -> None:
    bench = Bench(tmp_path)
    delivery(bench)
    put(bench, b"one", 1)
    bench.clock.jump_to(bench.clock.wall_ms() - STEP_BACK_MS_MAX)
    for _ in range(STEP_BACK_MS_MAX // LOOK_MS_MAX):
        bench.pass_time(LOOK_MS_MAX)
    assert bodies(bench) == []
    bench.pass_time(1_000)
    assert bodies(bench) == [b"one"]


def test_a_clock_that_is_set_back_by_an_hour_makes_nobody_wait_for_it(tmp_path: Path) -> None:
    bench = Bench(tmp_path)
    delivery(bench)
    put(bench, b"one", 1)
    bench.clock.jump_to(bench.clock.wall_ms() - 3_600_000)
    bench.pass_time(LOOK_MS_MAX)
    assert bodies(bench) == [b"one"]
    put(bench, b"new", 1)
    bench.pass_time(999)
    assert bodies(bench) == [b"one"]
    bench.pass_time(1)
    assert bodies(bench) == [b"one", b"new"]
