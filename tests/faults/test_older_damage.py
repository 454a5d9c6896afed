"""Damage where recovery had no reason to look, and in tables that no log can rebuild."""

import random
import shutil
from collections.abc import Iterator
from pathlib import Path

from faults.stores import (
    QuickDisk,
    Sender,
    Sent,
    Trial,
    check_served,
    open_store,
    reopen,
    the_seed,
    tiny_settings,
    trial,
)
from faults.test_bit_flips import flipped, make_template

from downrange.model.topics import TopicConfig
from downrange.runtime.durable_file import DurableFileError
from downrange.store.consume_queue import ENTRY_BYTES
from downrange.store.json_tables import TopicTable, topics_file
from downrange.store.settings import StoreSettings
from downrange.store.verify import verify_open

RECORD_BYTES = 128


def same_size_store(root: Path, topics: tuple[str, ...], queues: int) -> list[Sent]:
    """Records of one size, so that a flipped bit of an entry leads to another record's start."""
    store = open_store(tiny_settings(root))
    sent: list[Sent] = []
    for number in range(80):
        topic, queue_id = topics[number % len(topics)], number // len(topics) % queues
        body = b"%05d" % number
        properties = b"U\x01".ljust(RECORD_BYTES - 91 - len(topic) - len(body), b"p")
        put = store.append(topic, queue_id, body, properties)
        assert put.size == RECORD_BYTES
        place = (put.queue_offset, put.physical_offset, put.size)
        sent.append(Sent(topic, queue_id, *place, 0, body, properties, ()))
    store.dispatch_some()
    store.close()
    return sent


def check_offset_flips(root: Path, sent: list[Sent]) -> None:
    """Each entry led astray to each record that one bit away stands: still served as sent."""
    settings = tiny_settings(root)
    starts = {message.physical_offset for message in sent}
    wrong = 0
    for message in sent[:40]:
        for bit in range(7, 14):
            if message.physical_offset ^ 1 << bit not in starts:
                continue
            wrong += 1
            store = open_store(settings)
            queue = store.queues.get(message.topic, message.queue_id)
            assert queue is not None
            segment = queue.chain.segment_at(message.queue_offset * ENTRY_BYTES)
            assert segment is not None
            position = message.queue_offset * ENTRY_BYTES - segment.base_offset
            segment.map[position + 7 - bit // 8] ^= 1 << bit % 8
            check_served(store, sent)
            assert len(store.repair.damages) == 1, "reported once"
            assert store.repair.damages[0].path == segment.path
            assert store.repair.damages[0].position == position
            store.close()
    assert wrong > 50


def test_an_entry_that_points_at_another_message_of_its_size_is_set_right(scratch: Path) -> None:
    with trial("test_an_entry_that_points_at_another_message_of_its_size_is_set_right"):
        check_offset_flips(scratch, same_size_store(scratch, ("orders",), 3))


def test_an_entry_that_points_at_its_twin_in_another_topic_is_set_right(scratch: Path) -> None:
    with trial("test_an_entry_that_points_at_its_twin_in_another_topic_is_set_right"):
        check_offset_flips(scratch, same_size_store(scratch, ("orders", "audits"), 1))


def test_a_damaged_tag_code_in_an_older_entry_is_found_by_verification(scratch: Path) -> None:
    with trial("test_a_damaged_tag_code_in_an_older_entry_is_found_by_verification") as rng:
        template = make_template(scratch / "made", "clean")
        name = template.names("consumequeue/orders/")[0]
        for bit in rng.sample(range(12 * 8, 20 * 8), 10):
            rng.case = f"bit {bit} of {name}"
            store, _ = reopen(template.lay_out(scratch / "store", flipped(template, name, bit)))
            (damage,) = verify_open(store).damages
            assert damage.path == scratch / "store" / name
            assert damage.position == 0
            check_served(store, list(template.sent))
            store.close()
            shutil.rmtree(scratch / "store")


def test_a_damaged_size_in_an_older_record_costs_it_alone_and_is_reported_once(
    scratch: Path,
) -> None:
    with trial("test_a_damaged_size_in_an_older_record_costs_it_alone_and_is_reported_once"):
        settings = tiny_settings(scratch)
        sent = write_some(settings)
        hit = next(m for m in sent if m.queued and m.queue_offset == 1)
        path = settings.commit_log_path / f"{0:020d}"
        data = bytearray(path.read_bytes())
        assert hit.physical_offset < len(data)
        data[hit.physical_offset + 3] ^= 1
        path.write_bytes(data)
        store = open_store(settings)
        for _ in range(2):
            served = check_served(store, sent, but=[hit])
            assert hit.place not in served.messages
            found = [(d.path, d.position) for d in store.repair.damages if d.path == path]
            assert found == [(path, hit.physical_offset)]
        store.close()


def write_some(settings: StoreSettings) -> list[Sent]:
    store = open_store(settings)
    sender = Sender(store, random.Random(f"{the_seed()} older"), body_max=60)
    sent = sender.small("orders", 0, 4) + sender.small("audit", 0, 4) + sender.send(40)
    store.close()
    return sent


def load_flipped(scratch: Path, rng: Trial, backup: bytes | None) -> Iterator[TopicTable]:
    """What a table of topics reads as with each of its bits flipped; damage that is found out."""
    file = topics_file(QuickDisk(), scratch)
    file.save(TopicTable(topics={"orders": TopicConfig(topic_name="orders")}))
    sound = file.path.read_bytes()
    if backup is not None:
        file.backup_path.write_bytes(backup)
    for bit in range(len(sound) * 8):
        rng.case = f"bit {bit} of topics.json"
        data = bytearray(sound)
        data[bit // 8] ^= 1 << bit % 8
        file.path.write_bytes(data)
        try:
            table = topics_file(QuickDisk(), scratch).load()
        except DurableFileError:
            assert backup is None, "a sound backup is taken"
        else:
            assert table is not None
            yield table


def test_a_flipped_bit_in_a_table_is_found_or_reads_as_another_value(scratch: Path) -> None:
    """JSON has no checksum: what does not read as a table is an error that names the file."""
    with trial("test_a_flipped_bit_in_a_table_is_found_or_reads_as_another_value") as rng:
        assert list(load_flipped(scratch, rng, None))


def test_a_damaged_table_is_read_from_its_backup(scratch: Path) -> None:
    with trial("test_a_damaged_table_is_read_from_its_backup") as rng:
        backup = b'{"topicConfigTable":{"orders":{"topicName":"orders"}}}'
        assert list(load_flipped(scratch, rng, backup))


def test_a_flipped_bit_never_empties_a_table(scratch: Path) -> None:
    with trial("test_a_flipped_bit_never_empties_a_table") as rng:
        assert all(table.topics for table in load_flipped(scratch, rng, None))
