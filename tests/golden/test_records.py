"""Commit logs of the real RocketMQ: records read as Apache reads them, written again the same."""

import pytest
from golden.captured import CAPTURES, facts, store_files
from interop.message_lines import line_of_record

from downrange.protocol.properties import decode_properties, encode_properties
from downrange.protocol.record import (
    BLANK,
    MAGIC_BLANK,
    MAGIC_V1,
    MAGIC_V2,
    Record,
    decode_record,
    encode_record,
    record_size,
)
from downrange.protocol.sys_flag import BORN_HOST_V6, COMPRESSED, STORE_HOST_V6


def records(capture: str) -> dict[int, tuple[Record, bytes]]:
    """Every record of the log and its bytes, by physical offset."""
    found = {}
    for path, content in store_files(capture, "commitlog"):
        base = int(path.rpartition("/")[2])
        start = 0
        while start + BLANK.size <= len(content):
            size, magic = BLANK.unpack_from(content, start)
            if magic in {MAGIC_BLANK, 0}:
                break
            raw = content[start : start + size]
            found[base + start] = decode_record(content, start), raw
            start += record_size(content, start)
    return found


@pytest.mark.parametrize("capture", CAPTURES)
def test_a_record_written_again_has_the_same_bytes(capture: str) -> None:
    found = records(capture)
    assert len(found) > 20
    for physical_offset, (record, raw) in found.items():
        assert record.physical_offset == physical_offset
        assert encode_record(record) == raw


@pytest.mark.parametrize("capture", CAPTURES)
def test_every_message_reads_as_apache_reads_it(capture: str) -> None:
    found = records(capture)
    dumped = facts(capture).messages
    assert len(dumped) > 20
    for message in dumped.values():
        record, _ = found[message.physical_offset]
        assert line_of_record(record) == message


def test_the_captures_hold_every_form_of_a_record() -> None:
    every = [record for capture in CAPTURES for record, _ in records(capture).values()]
    assert {record.magic for record in every} == {MAGIC_V1, MAGIC_V2}
    hosts = STORE_HOST_V6 | BORN_HOST_V6
    assert {record.sys_flag & hosts for record in every} == {0, hosts}
    assert any(not record.body for record in every)
    assert any(record.sys_flag & COMPRESSED for record in every)
    assert any(record.reconsume_times for record in every)
    assert any(record.prepared_offset for record in every)


def test_a_full_log_file_ends_with_a_blank_that_fills_it() -> None:
    files = list(store_files("clean", "commitlog"))
    assert len(files) > 2
    for path, content in files[:-1]:
        base = int(path.rpartition("/")[2])
        in_file = {offset for offset in records("clean") if base <= offset < base + len(content)}
        last = max(in_file) - base
        blank_start = last + record_size(content, last)
        size, magic = BLANK.unpack_from(content, blank_start)
        assert magic == MAGIC_BLANK
        assert size == len(content) - blank_start
        assert not content[blank_start + BLANK.size :].strip(b"\0")


@pytest.mark.parametrize("capture", CAPTURES)
def test_a_property_text_written_again_has_the_same_bytes(capture: str) -> None:
    for record, _ in records(capture).values():
        written = encode_properties(decode_properties(record.properties))
        # Clients and brokers end the text with or without the separator; both read the same.
        assert written.rstrip(b"\x02") == record.properties.rstrip(b"\x02")
