"""Store files read without a broker give what a broker would have given, damage included."""

import random
import shutil
from dataclasses import replace
from datetime import datetime
from pathlib import Path
from typing import TypedDict

import pyarrow as pa
import pytest
from faults.stores import (
    Sender,
    Sent,
    abandon,
    open_store,
    small_settings,
    the_seed,
    tiny_settings,
    trial,
)
from golden.captured import CAPTURES, facts, restore_store

from downrange.runtime.disk import Disk
from downrange.spark.log_files import LogFileError
from downrange.spark.option_values import OptionError
from downrange.spark.store_files import (
    LogPart,
    RocketMQStoreDataSource,
    StoreDamageError,
    StoreReader,
)
from downrange.spark.store_options import StoreOptions, store_options
from downrange.store.commit_log import CommitLog
from downrange.store.log_paths import LogPaths
from downrange.store.scanner import Damage, LogScanner
from downrange.store.settings import StoreSettings
from downrange.store.store_files import StoreFiles


class Row(TypedDict):
    """What the tests look at of a row."""

    msgId: str
    topic: str
    queueId: int
    queueOffset: int
    body: bytes
    tags: str | None
    keys: str | None
    bornTimestamp: datetime
    storeTimestamp: datetime
    reconsumeTimes: int
    brokerName: str | None
    properties: list[tuple[str, str]]


EVERYTHING = StoreOptions(path="")
SKIPPING = StoreOptions(path="", skips_damage=True)


def rows(
    root: Path | str, split_bytes: int = 1 << 30, options: StoreOptions = EVERYTHING
) -> list[Row]:
    """What all tasks together read."""
    reader = StoreReader(replace(options, path=str(root), split_bytes=split_bytes))
    found: list[Row] = []
    for part in reader.partitions():
        for batch in reader.read(part):
            found += batch.to_pylist()
    return found


def offset_of(row: Row) -> int:
    """The physical offset, which is the end of the id."""
    return int(row["msgId"][-16:], 16)


def expected(sent: list[Sent]) -> list[tuple[int, str, int, bytes]]:
    return sorted((one.physical_offset, one.topic, one.queue_id, one.body) for one in sent)


def read(found: list[Row]) -> list[tuple[int, str, int, bytes]]:
    return sorted((offset_of(row), row["topic"], row["queueId"], row["body"]) for row in found)


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list[Sent]]:
    root = tmp_path_factory.mktemp("written") / "store"
    store = open_store(small_settings(root))
    sender = Sender(store, random.Random(the_seed()))
    sender.send(400)
    store.close()
    return root, sender.sent


@pytest.mark.parametrize("split_bytes", [1 << 30, 65_536, 10_000, 997])
def test_all_records_are_read_once_however_the_files_are_cut(
    written: tuple[Path, list[Sent]], split_bytes: int
) -> None:
    root, sent = written
    found = rows(root, split_bytes)
    assert read(found) == expected(sent)
    assert rows(root / "commitlog", split_bytes) == found


@pytest.mark.parametrize("capture", CAPTURES)
@pytest.mark.parametrize("split_bytes", [1 << 30, 4_001])
def test_a_store_of_apache_is_read_as_apache_reads_it(
    capture: str, split_bytes: int, tmp_path: Path
) -> None:
    restore_store(capture, tmp_path)
    found = {
        (row["topic"], row["queueId"], row["queueOffset"], row["msgId"]): row
        for row in rows(tmp_path, split_bytes, StoreOptions(path="", broker_name="broker-a"))
    }
    held = facts(capture).messages
    assert held
    for line in held.values():
        row = found[line.topic, line.queue_id, line.queue_offset, line.offset_msg_id]
        assert row["bornTimestamp"].timestamp() == pytest.approx(line.born_timestamp / 1000)
        assert row["storeTimestamp"].timestamp() == pytest.approx(line.store_timestamp / 1000)
        assert row["reconsumeTimes"] == line.reconsume_times
        assert line.properties.items() <= dict(row["properties"]).items()
        assert row["keys"] == line.properties.get("KEYS")
        assert row["brokerName"] == "broker-a"


def test_rows_are_chosen_by_topic_time_and_tag(written: tuple[Path, list[Sent]]) -> None:
    root, sent = written
    all_rows = rows(root)
    times = sorted(int(row["storeTimestamp"].timestamp() * 1000) for row in all_rows)
    start_ms, end_ms = times[100], times[300]
    assert read(rows(root, options=StoreOptions(path="", topics=("orders", "audit")))) == expected(
        [one for one in sent if one.topic in {"orders", "audit"}]
    )
    assert read(
        rows(root, options=StoreOptions(path="", start_ms=start_ms, end_ms=end_ms))
    ) == read(
        [row for row in all_rows if start_ms <= row["storeTimestamp"].timestamp() * 1000 < end_ms]
    )
    tagged = rows(
        root, options=StoreOptions(path="", tags=("paid", "late"), fields=("msgId", "topic"))
    )
    assert sorted(map(offset_of, tagged)) == sorted(
        offset_of(row) for row in all_rows if row["tags"] in {"paid", "late"}
    )
    assert set(tagged[0]) == {"msgId", "topic"}
    assert rows(root, options=StoreOptions(path="", topics=("nobody",))) == []


def test_a_log_that_was_torn_ends_where_recovery_lets_it_end(tmp_path: Path) -> None:
    with trial("torn_tail_read_from_files") as rng:
        store = open_store(small_settings(tmp_path))
        sender = Sender(store, rng)
        sender.send(150)
        abandon(store)
        for _ in range(5):
            last = max(sender.sent, key=lambda one: one.physical_offset)
            rng.case = cut = str(rng.randrange(1, last.size))
            copy = tmp_path / "copy"
            shutil.copytree(tmp_path / "commitlog", copy / "commitlog")
            base = last.physical_offset // 65_536 * 65_536
            path = copy / "commitlog" / f"{base:020d}"
            data = path.read_bytes()
            end = last.physical_offset - base + int(cut)
            path.write_bytes(data[:end].ljust(65_536, b"\0"))
            whole = [one for one in sender.sent if one is not last]
            for split_bytes in (1 << 30, 7_001):
                assert read(rows(copy, split_bytes)) == expected(whole)
            path.write_bytes(data[:end])  # a copy that ends there
            assert read(rows(copy, 7_001)) == expected(whole)
            shutil.rmtree(copy)


def scanned(settings: StoreSettings) -> tuple[list[int], list[Damage]]:
    """What recovery's own walk finds."""
    log = CommitLog(StoreFiles.of(Disk()), settings)
    log.load()
    damages: list[Damage] = []
    scanner = LogScanner(log, lambda damage, _: damages.append(damage))
    offsets = [record[0] for record in scanner.scan(log.min_offset)]
    log.close()
    return offsets, damages


def test_damage_is_passed_over_as_recovery_passes_it(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with trial("damage_read_from_files") as rng:
        original = tmp_path / "original"
        store = open_store(tiny_settings(original))
        Sender(store, rng, body_max=200).send(60)
        store.close()
        files = sorted((original / "commitlog").iterdir())
        for _ in range(16):
            copy = tmp_path / "copy"
            shutil.copytree(original, copy)
            path = copy / "commitlog" / rng.choice(files[:-1]).name
            data = bytearray(path.read_bytes())
            start, size = rng.randrange(len(data)), rng.choice((1, 1, 4, 300))
            rng.case = f"{path.name} at {start}, {size} bytes"
            data[start : start + size] = rng.randbytes(len(data[start : start + size]))
            path.write_bytes(data)
            wanted, damages = scanned(tiny_settings(copy))
            for split_bytes in (1 << 30, 333):
                caplog.clear()
                found = rows(copy, split_bytes, SKIPPING)
                # A flipped flag may call a body compressed: sound, and yet no message.
                unread = set(wanted) - set(map(offset_of, found))
                assert sorted(map(offset_of, found)) == [one for one in wanted if one not in unread]
                said = [line for line in caplog.messages if line.startswith("skipped")]
                told = [line for line in said if "body is damaged" in line]
                assert len(told) == len(unread)
                assert len(said) == len(told) + len(damages)
                for damage in damages:
                    text = f"{damage.path} at {damage.position}, {damage.size} bytes"
                    assert any(text in line for line in said), damage
            if damages:
                with pytest.raises(StoreDamageError, match=r"at \d+, \d+ bytes.*onDamage=skip"):
                    rows(copy)
            shutil.rmtree(copy)


def test_a_missing_file_is_told(written: tuple[Path, list[Sent]], tmp_path: Path) -> None:
    root, sent = written
    shutil.copytree(root / "commitlog", tmp_path / "commitlog")
    gone = sorted((tmp_path / "commitlog").iterdir())[1]
    gone.unlink()
    with pytest.raises(StoreDamageError, match=r"does not follow on .*onDamage=skip"):
        rows(tmp_path)
    base = int(gone.name)
    left = [one for one in sent if not base <= one.physical_offset < base + 65_536]
    assert read(rows(tmp_path, options=SKIPPING)) == expected(left)


def test_a_store_is_found_by_folder_or_address(written: tuple[Path, list[Sent]]) -> None:
    root, sent = written
    for path in (f"file://{root}", f"file:{root}", f"{root}/", str(root / "commitlog")):
        assert len(rows(path)) == len(sent)


def test_bytes_behind_an_address_are_read_alike(
    written: tuple[Path, list[Sent]], monkeypatch: pytest.MonkeyPatch
) -> None:
    root, sent = written

    class Elsewhere:
        """No file system is a local one any more."""

    monkeypatch.setattr("downrange.spark.log_files.pafs.LocalFileSystem", Elsewhere)
    for split_bytes in (1 << 30, 5_003):
        assert read(rows(f"file://{root}", split_bytes)) == expected(sent)


def test_what_is_no_store_is_refused(tmp_path: Path) -> None:
    with pytest.raises(LogFileError, match="holds no commit log"):
        rows(tmp_path)
    with pytest.raises(LogFileError, match=r"cannot be read|holds no commit log"):
        rows(tmp_path / "nothing")
    with pytest.raises(LogFileError, match="cannot be read"):
        rows("nonsense://host/path")


def test_files_are_read_in_parts_of_the_size_asked_for(written: tuple[Path, list[Sent]]) -> None:
    root, _ = written
    parts = StoreReader(StoreOptions(path=str(root), split_bytes=30_000)).partitions()
    assert all(isinstance(part, LogPart) for part in parts)
    assert len(parts) == 3 * len(list((root / "commitlog").iterdir()))


def test_options_of_a_store_read_are_checked() -> None:
    options = store_options(
        {
            "path": "/store", "subscribe": "a,b", "startingTimestamp": "5", "endingTimestamp": "9",
            "tags": "x || y", "fields": "body,topic", "includeProperties": "false",
            "onDamage": "skip", "checkCrc": "false", "brokerName": "b", "splitBytes": "100000",
        }
    )  # fmt: skip
    assert (options.topics, options.tags, options.fields) == (
        ("a", "b"), ("x", "y"), ("body", "topic"),
    )  # fmt: skip
    assert (options.start_ms, options.end_ms, options.split_bytes) == (5, 9, 100_000)
    assert (options.skips_damage, options.check_crc, options.include_properties) == (
        True, False, False,
    )  # fmt: skip
    source = RocketMQStoreDataSource({"path": "/store", "fields": "body,topic"})
    assert source.schema().fieldNames() == ["body", "topic"]
    assert RocketMQStoreDataSource.name() == "rocketmq-store"


@pytest.mark.parametrize(
    ("given", "reason"),
    [
        ({}, "'path' is missing"),
        ({"path": "/s", "topic": "t"}, "'topic' is unknown.*subscribe"),
        ({"path": "/s", "subscribe": "a b"}, "'subscribe'"),
        ({"path": "/s", "onDamage": "ignore"}, "'onDamage': 'ignore' is neither fail nor skip"),
        ({"path": "/s", "fields": "colour"}, "'fields': 'colour' is no column"),
        ({"path": "/s", "splitBytes": "1"}, "'splitBytes'"),
        ({"path": "/s", "startingTimestamp": "soon"}, "'startingTimestamp'"),
    ],
)
def test_a_wrong_option_of_a_store_read_is_named(given: dict[str, str], reason: str) -> None:
    with pytest.raises(OptionError, match=reason):
        store_options(given)


def test_batches_have_the_schema_that_spark_was_told(written: tuple[Path, list[Sent]]) -> None:
    root, _ = written
    reader = StoreReader(StoreOptions(path=str(root)))
    batch = next(iter(reader.read(reader.partitions()[0])))
    assert isinstance(batch, pa.RecordBatch)
    assert batch.schema.names == RocketMQStoreDataSource({"path": "x"}).schema().fieldNames()


def test_a_log_that_is_spread_over_folders_is_read_as_one(tmp_path: Path) -> None:
    settings = tiny_settings(tmp_path / "store")
    paths = (tmp_path / "a, of two", tmp_path / "b")
    spread = replace(settings, commit_log=LogPaths(paths))
    store = open_store(spread)
    for number in range(300):
        store.append("T", 0, b"%d" % number, b"")
    store.close()
    assert all(len(list(path.iterdir())) > 1 for path in paths)
    shutil.move(paths[0], tmp_path / "a")  # a comma separates
    found = rows(f"{tmp_path / 'a'}, {paths[1]}")
    assert [row["body"] for row in found] == [b"%d" % number for number in range(300)]
    with pytest.raises(LogFileError, match="no commit log"):
        rows(f"{tmp_path / 'nothing'},{tmp_path / 'neither'}")
