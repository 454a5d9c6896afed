"""Prometheus' text format, read back with Prometheus' own parser."""

import math

from prometheus_client.parser import text_string_to_metric_families as parse

from downrange.monitoring.exposition import Exposition
from downrange.runtime.slices import at_once


def test_what_is_written_is_read_back_by_prometheus() -> None:
    page = Exposition()
    section = page.section({"cluster": "c1"})
    about = 'All, with "quotes" and \\ and\nlines'
    counter = section.counter("rocketmq_messages_in_total", about)
    counter.add(3, topic='or"ders\\ \n', is_system="false")
    gauge = section.gauge("free", "Free")
    gauge.add(0.5)
    gauge.add(math.inf, of="all")
    (first, second) = parse(bytes(at_once(page.rendered())).decode())
    assert (first.name, first.type) == ("rocketmq_messages_in", "counter")
    assert first.documentation == about
    (sample,) = first.samples
    assert sample.labels == {"cluster": "c1", "topic": 'or"ders\\ \n', "is_system": "false"}
    assert sample.value == 3
    assert [(sample.labels, sample.value) for sample in second.samples] == [
        ({"cluster": "c1"}, 0.5),
        ({"cluster": "c1", "of": "all"}, math.inf),
    ]


def test_a_histogram_is_cumulative_and_ends_with_all() -> None:
    page = Exposition()
    family = page.section().family("latency", "histogram", "Time")
    family.add_histogram((1, 10), (5, 0, 2), 123.5, code="send")
    (found,) = parse(bytes(at_once(page.rendered())).decode())
    assert found.type == "histogram"
    values = {(s.name, s.labels.get("le")): s.value for s in found.samples}
    assert values == {
        ("latency_bucket", "1"): 5,
        ("latency_bucket", "10"): 5,
        ("latency_bucket", "+Inf"): 7,
        ("latency_sum", None): 123.5,
        ("latency_count", None): 7,
    }


def test_families_of_one_name_are_one_and_empty_ones_are_none() -> None:
    page = Exposition()
    for node in ("a", "b"):
        section = page.section({"node_id": node})
        section.gauge("size", "Size").add(1)
        section.gauge("empty", "Nothing")
    text = bytes(at_once(page.rendered())).decode()
    assert text.count("# TYPE") == 1
    (found,) = parse(text)
    assert [sample.labels["node_id"] for sample in found.samples] == ["a", "b"]
    assert at_once(Exposition().rendered()) == b""
