"""Pipeline files: what is right is read, what is wrong is named."""

from pathlib import Path

import pytest

from downrange.spark.pipelines.definition import Archive, Replay, Transform
from downrange.spark.pipelines.toml_file import PipelineFileError, load, parse

ARCHIVE = """
kind = "archive"
name = "orders"
name_servers = "127.0.0.1:9876"
checkpoint = "/checkpoints"
path = "/archive"
[source]
topics = ["orders", "%RETRY%g"]
"""
TRANSFORM = """
kind = "transform"
name = "orders"
name_servers = "127.0.0.1:9876"
checkpoint = "/checkpoints"
[access]
access_key = "me"
secret_key = "${SECRET}"
[[source]]
name = "orders"
topics = ["orders"]
schema = "id BIGINT"
[[step]]
name = "even"
sql = "SELECT * FROM orders WHERE id % 2 = 0"
[[sink]]
from = "even"
topic = "even-orders"
[dead_letters]
topic = "bad-orders"
"""


def test_an_archive() -> None:
    pipeline = parse(ARCHIVE, {})
    assert isinstance(pipeline, Archive)
    assert pipeline.source.read_options() == {
        "subscribe": "orders,%RETRY%g",
        "startingOffsets": "earliest",
    }
    assert pipeline.connecting() == {"nameServers": "127.0.0.1:9876"}


def test_a_transform_with_a_secret_of_the_environment() -> None:
    pipeline = parse(TRANSFORM, {"SECRET": "s"})
    assert isinstance(pipeline, Transform)
    assert pipeline.connecting()["secretKey"] == "s"
    assert pipeline.sink[0].view == "even"


@pytest.mark.parametrize(
    ("old", "new", "told"),
    [
        ('kind = "archive"', "", r"kind is missing; there are archive"),
        ('kind = "archive"', 'kind = "copy"', r"kind is 'copy'; there are archive"),
        ("checkpoint =", "checkpiont =", r"key 'checkpiont' is unknown; allowed are access, check"),
        ("topics =", "topic =", r"key 'source.topic' is unknown; allowed are group, options"),
        ('checkpoint = "/checkpoints"', "", r"key 'checkpoint' is missing"),
        ('path = "/archive"', "path = 7", r"path: Expected `str`, got `int`"),
        ('path = "/archive"', 'path = ""', r"path: Expected `str` of length >= 1"),
        ('["orders", "%RETRY%g"]', '["a b"]', r"source.topics\[0\]: Expected `str` matching"),
        ('["orders", "%RETRY%g"]', "[]", r"source: give one of topics and pattern"),
        ("kind =", "kind ==", r"no TOML"),
    ],
)
def test_what_is_wrong_in_an_archive_is_named(old: str, new: str, told: str) -> None:
    assert old in ARCHIVE
    with pytest.raises(PipelineFileError, match=told):
        parse(ARCHIVE.replace(old, new), {})


@pytest.mark.parametrize(
    ("old", "new", "told"),
    [
        ("${SECRET}", "${OTHER}", r"environment has no OTHER"),
        ('access_key = "me"', "", r"access: access_key and secret_key"),
        ('from = "even"', 'from = "odd"', r"from is 'odd', which is none of orders, even"),
        ('from = "even"', "", r"key 'sink\[0\].from' is missing"),
        ('name = "even"', 'name = "orders"', r"the name 'orders' is given twice"),
        (
            'topic = "even-orders"',
            'topic = "x"\npath = "/y"',
            r"sink\[0\]: give one of topic and",
        ),
        ('[dead_letters]\ntopic = "bad-orders"', "", r"where do rows go that do not decode"),
    ],
)
def test_what_is_wrong_in_a_transform_is_named(old: str, new: str, told: str) -> None:
    assert old in TRANSFORM
    with pytest.raises(PipelineFileError, match=told):
        parse(TRANSFORM.replace(old, new), {"SECRET": "s"})


REPLAY = """
kind = "replay"
name = "again"
name_servers = "127.0.0.1:9876"
[source]
topics = ["orders"]
since = 2026-01-01T00:00:00Z
until = 2026-01-02T00:00:00Z
[target]
topic = "orders-again"
"""


@pytest.mark.parametrize(
    ("old", "new", "told"),
    [
        ("2026-01-02T00:00:00Z", "2025-01-02T00:00:00Z", r"source: since is not before until"),
        ("2026-01-02T00:00:00Z", "2026-01-02T00:00:00", r"source.until: Expected `datetime` with"),
        ('topics = ["orders"]', "", r"source: give one of archive and topics"),
        ("orders-again", "orders", r"'orders' is a source too"),
        ("[target]", "[target]\nrate = -1", r"target.rate: Expected `int` >= 0"),
        ("[target]", "[target]\nqueues = 'x'", r"target.queues: Invalid enum value 'x'"),
    ],
)
def test_what_is_wrong_in_a_replay_is_named(old: str, new: str, told: str) -> None:
    assert isinstance(parse(REPLAY, {}), Replay)
    assert old in REPLAY
    with pytest.raises(PipelineFileError, match=told):
        parse(REPLAY.replace(old, new), {})


def test_a_file_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(PipelineFileError, match=r"none.toml: cannot be read"):
        load(tmp_path / "none.toml", {})
