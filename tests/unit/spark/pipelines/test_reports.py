"""Tables and charts of reports."""

from datetime import UTC, datetime
from xml.etree import ElementTree as Xml

from downrange.spark.pipelines.analytics import lag_table, report
from downrange.spark.pipelines.group_lags import GroupLag
from downrange.spark.pipelines.html_report import Bars, page, svg
from downrange.spark.pipelines.text_table import Table

TABLE = Table(
    "letters", ("group", "day", "count"),
    [("a", datetime(2026, 1, 1, tzinfo=UTC), 5), (None, None, 12_345)],
)  # fmt: skip


def test_numbers_stand_to_the_right() -> None:
    assert TABLE.lines() == [
        "letters",
        "group  day                        count",
        "a      2026-01-01 00:00:00+00:00      5",
        "-      -                          12345",
    ]


def test_csv_has_names_and_rows() -> None:
    assert TABLE.csv() == "group,day,count\na,2026-01-01 00:00:00+00:00,5\n-,-,12345\n"


def test_bars_are_as_long_as_their_values() -> None:
    text = svg(Bars("t", "ms", ("p50", "p99"), ("a<b", "c"), ((10.0, 100.0), (0.0, 50.0))))
    drawn = Xml.fromstring(text[text.index("<svg") :])
    name = "{http://www.w3.org/2000/svg}rect"
    widths = [int(rect.attrib["width"]) for rect in drawn.iter(name)][2:]
    assert widths == [38, 380, 1, 190]
    assert "a&lt;b" in text


def test_what_users_named_is_escaped() -> None:
    assert "<script>" not in page("<script>", [Table("x", ("<script>",), [("<script>",)])])


def test_the_page_has_bars_for_tables_with_percentiles() -> None:
    latencies = Table(
        "sending", ("topic", "sent", "p50 ms", "p90 ms", "p99 ms"), [("orders", 3, 1.0, 2.0, 3.0)]
    )
    lags = lag_table([GroupLag("g", "t", 1), GroupLag("h", "t", 9), GroupLag("i", "t", 5)], 2)
    assert lags.rows == [("h", "t", 9), ("i", "t", 5)]
    text = report("mine", [latencies, lags])
    assert text.count("<svg") == 1
    assert text.count("<table") == 2
