"""Topics that have messages are found again when the table has lost them."""

import json
import shutil
from pathlib import Path

import pytest
from unit.broker.one_broker import OneBroker
from unit.broker.promises import (
    PROMISES,
    TOPIC,
    bodies,
    create_topic,
    has_topic,
    prepare,
    tables_of,
)

from downrange.protocol.response_codes import ResponseCode
from downrange.testing.virtual_time import run


def test_a_topic_that_the_table_has_lost_is_restored_with_its_messages(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async def main() -> None:
        async with OneBroker(tmp_path) as broker:
            await create_topic(broker, TOPIC, 8)
            for queue_id in (0, 2):
                assert (await broker.send(TOPIC, queue_id=queue_id)).code == ResponseCode.SUCCESS
            await create_topic(broker, "empty")
        for name in ("topics.json", "topics.json.bak"):
            (tmp_path / "store" / "config" / name).unlink()
        for attempt in range(2):
            caplog.clear()
            async with OneBroker(tmp_path) as broker:
                assert await bodies(broker, TOPIC) == [b"body"]
                config = tables_of(broker).topics.get(TOPIC)
                assert config is not None
                assert (config.read_queue_nums, config.write_queue_nums, config.perm) == (3, 3, 6)
                assert not await has_topic(broker, "empty")
            warned = [one for one in caplog.messages if "restored with 3 queues" in one]
            assert len(warned) == (attempt == 0), "it is on disk again"

    run(main())


@pytest.mark.parametrize("has_manifest", [True, False])
def test_a_topic_that_an_apache_broker_has_deleted_comes_back_and_is_deleted_here_for_good(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, *, has_manifest: bool
) -> None:
    """An Apache broker removes the topic from its table and its queues, and keeps no note of it."""
    root = tmp_path / "store"

    async def main() -> None:
        async with OneBroker(tmp_path) as broker:
            await prepare(broker)
            assert (await broker.send("other")).code == ResponseCode.SUCCESS
        for name in ("topics.json", "topics.json.bak"):
            file = root / "config" / name
            table = json.loads(file.read_bytes())
            table["topicConfigTable"].pop(TOPIC, None)
            file.write_text(json.dumps(table))
        shutil.rmtree(root / "consumequeue" / TOPIC)
        if not has_manifest:
            (root / "derived.json").unlink()
        async with OneBroker(tmp_path) as broker:
            assert await bodies(broker, TOPIC) == [b"0", b"1"]
            assert any(f"topic {TOPIC}: has messages" in one for one in caplog.messages)
            answer = await PROMISES["delete a topic"].ask(broker)
            assert answer.code == ResponseCode.SUCCESS
        async with OneBroker(tmp_path) as broker:
            assert await PROMISES["delete a topic"].is_kept(broker)
            assert await bodies(broker, "other") == [b"body"]

    run(main())


def test_a_number_of_queues_that_an_operator_has_reduced_stays_reduced(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async def main() -> None:
        async with OneBroker(tmp_path) as broker:
            await create_topic(broker, TOPIC, 4)
            assert (await broker.send(TOPIC, queue_id=3)).code == ResponseCode.SUCCESS
            await create_topic(broker, TOPIC, 2)
        async with OneBroker(tmp_path) as broker:
            config = tables_of(broker).topics.get(TOPIC)
            assert config is not None
            assert config.read_queue_nums == 2
        assert any("queue 3 has messages" in one for one in caplog.messages)

    run(main())
