"""How fast records become Arrow batches in one process, and which column costs what.

usage: spark_decode.py [--runs 5] [--seconds 1]

Decodes the answer to one large pull again and again: 16,000 records with bodies of 100 bytes, 4,000
with 1 KiB. Figures are medians of the runs.
"""

import argparse
import statistics
import time
from collections.abc import Sequence

from machine import facts

from downrange.client.record_reader import read_response
from downrange.protocol.hosts import encode_host
from downrange.protocol.record import Record, encode_record
from downrange.spark.arrow_records import RecordDecoder
from downrange.spark.columns import ALL_COLUMNS

SIZES = ((100, 16_000), (1_024, 4_000))
PROPERTIES = (
    b"KEYS\x01key-%d\x02UNIQ_KEY\x017F0000010001%020X\x02WAIT\x01true\x02TAGS\x01tag-%d\x02"
)


def records(count: int, body_bytes: int) -> bytes:
    """Records as they stand in a log, with keys, tag and unique id."""
    host = encode_host("127.0.0.1", 10911)
    parts = []
    physical_offset = 0
    for number in range(count):
        record = encode_record(
            Record(
                3, 0, number, physical_offset, 0, 1_700_000_000_000 + number, host,
                1_700_000_000_000 + number, host, 0, 0, bytes(body_bytes), b"BenchmarkTest",
                PROPERTIES % (number, number, number % 5),
            )
        )  # fmt: skip
        physical_offset += len(record)
        parts.append(record)
    return b"".join(parts)


def decoded_per_s(
    data: bytes,
    count: int,
    fields: Sequence[str],
    seconds: float,
    *,
    include_properties: bool = True,
    check_crc: bool = False,
) -> float:
    """Messages a second, over and over for so long."""
    decoder = RecordDecoder(fields, include_properties=include_properties, check_crc=check_crc)
    decoder.decode(data, broker_name="broker-a")
    turns = 0
    begin = time.perf_counter()
    while (taken := time.perf_counter() - begin) < seconds:
        decoder.decode(data, broker_name="broker-a")
        turns += 1
    return turns * count / taken


def loop_per_s(data: bytes, count: int) -> float:
    """The same by the client's reader, which makes an object a message."""
    begin = time.perf_counter()
    read_response(data, broker_name="broker-a", check_crc=False)
    return count / (time.perf_counter() - begin)


def main() -> None:
    """Measure and print."""
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("--runs", type=int, default=5)
    arguments.add_argument("--seconds", type=float, default=1.0)
    given = arguments.parse_args()
    print(facts())
    for body_bytes, count in SIZES:
        data = records(count, body_bytes)
        cases = {
            "all columns": (ALL_COLUMNS, True, False),
            "all columns, properties null": (ALL_COLUMNS, False, False),
            "the same, checksums checked": (ALL_COLUMNS, False, True),
            "queueOffset, body": (("queueOffset", "body"), False, False),
        }
        cases |= {f"only {name}": ((name,), True, False) for name in ALL_COLUMNS}
        print(f"\n{count} records a pull, bodies of {body_bytes} bytes: messages/s (us each)")
        loops = statistics.median(loop_per_s(data, count) for _ in range(given.runs))
        print(f"  {'objects, for comparison':32}{loops:12,.0f}   {1e6 / loops:.3f}")
        for name, (fields, with_map, crc) in cases.items():
            figure = statistics.median(
                decoded_per_s(
                    data,
                    count,
                    fields,
                    given.seconds / len(cases) * 4,
                    include_properties=with_map,
                    check_crc=crc,
                )
                for _ in range(given.runs)
            )
            print(f"  {name:32}{figure:12,.0f}   {1e6 / figure:.3f}")


if __name__ == "__main__":
    main()
