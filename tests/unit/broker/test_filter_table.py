"""SQL92 subscriptions: registered by heartbeats, kept over restarts, forgotten after a day."""

import json
from pathlib import Path

import pytest
from unit.broker.one_broker import OneBroker, pass_time, records

from downrange.broker.filter_table import DEAD_KEPT_MS, FilterTable
from downrange.broker.settings import BrokerSettings
from downrange.broker.subscriptions import SubscriptionFilters
from downrange.protocol.bodies.heartbeat import ConsumerGroup, Heartbeat, Subscription
from downrange.protocol.bodies.json_body import encode_body
from downrange.protocol.command import Command
from downrange.protocol.headers.fields import encode_header
from downrange.protocol.request_codes import RequestCode
from downrange.protocol.response_codes import ResponseCode
from downrange.remoting.connection import Connection
from downrange.runtime.disk import Disk
from downrange.store.filter_tables import consumer_filters_file
from downrange.testing.clock import ManualClock
from downrange.testing.virtual_time import run

GROUP = "sql-client-5-5-0-json"


def sql(text: str, version: int = 1, topic: str = "orders") -> Subscription:
    return Subscription(topic=topic, sub_string=text, sub_version=version, expression_type="SQL92")


@pytest.fixture
def table(tmp_path: Path, clock: ManualClock, disk: Disk) -> FilterTable:
    return open_table(tmp_path, clock, disk)


def open_table(folder: Path, clock: ManualClock, disk: Disk) -> FilterTable:
    table = FilterTable(consumer_filters_file(disk, folder), clock, SubscriptionFilters.compile)
    table.load()
    return table


def expression(table: FilterTable, topic: str = "orders") -> str | None:
    found = table.get(topic, "g")
    return found.expression if found is not None else None


def test_a_newer_expression_replaces_an_older_one_and_tags_are_not_kept(table: FilterTable) -> None:
    table.register("g", [sql("a > 1", 5), Subscription(topic="tags", sub_string="x")])
    assert expression(table) == "a > 1"
    assert table.get("tags", "g") is None
    table.register("g", [sql("a > 2", 4)])
    table.register("g", [sql("a > 3", 5)])
    assert expression(table) == "a > 1"
    table.register("g", [sql("a > 4", 6)])
    assert expression(table) == "a > 4"


def test_a_text_that_is_no_expression_takes_the_old_one_away(table: FilterTable) -> None:
    table.register("g", [sql("a > 1", 5)])
    table.register("g", [sql("a > > 1", 6)])
    assert table.get("orders", "g") is None


def test_what_nobody_subscribes_dies_lives_again_or_is_forgotten_after_a_day(
    tmp_path: Path, table: FilterTable, clock: ManualClock, disk: Disk
) -> None:
    table.register("g", [sql("a > 1"), sql("b > 1", topic="other")])
    clock.advance(1_000)
    table.register("g", [sql("a > 1")])
    dead, alive = table.get("other", "g"), table.get("orders", "g")
    assert dead is not None
    assert alive is not None
    assert (dead.is_dead, alive.is_dead) == (True, False)
    table.register("g", [sql("b > 1", topic="other")])
    table.unregister("g")
    table.save()
    dirty = [table.is_dirty]
    clock.advance(DEAD_KEPT_MS)
    dirty.append(table.is_dirty)
    assert dirty == [False, True]
    table.save()
    text = (tmp_path / "consumerFilter.json").read_text()
    assert json.loads(text) == {"filterDataByTopic": {}}
    assert open_table(tmp_path, clock, disk).get("orders", "g") is None


def test_the_table_of_an_apache_broker_is_read(
    golden_config: Path, clock: ManualClock, disk: Disk
) -> None:
    table = open_table(golden_config, clock, disk)
    found = table.get("orders", GROUP)
    assert found is not None
    assert found.expression == "number BETWEEN 0 AND 8 AND TAGS IS NOT NULL"
    assert found.is_dead


def test_what_lived_at_the_end_is_dead_after_a_restart_until_its_clients_are_back(
    tmp_path: Path, table: FilterTable, clock: ManualClock, disk: Disk
) -> None:
    table.register("g", [sql("a > 1", 5)])
    table.save()
    clock.advance(60_000)
    again = open_table(tmp_path, clock, disk)
    found = again.get("orders", "g")
    assert found is not None
    assert found.is_dead
    assert found.dead_ms == clock.wall_ms() - 30_000
    again.register("g", [sql("a > 1", 5)])
    found = again.get("orders", "g")
    assert found is not None
    assert (found.is_dead, found.dead_ms) == (False, 0)


def test_bits_of_another_filter_make_the_table_worthless(
    tmp_path: Path, table: FilterTable, clock: ManualClock, disk: Disk
) -> None:
    table.register("g", [sql("a > 1")])
    table.save()
    path = tmp_path / "consumerFilter.json"
    path.write_text(path.read_text().replace('"bitNum":112', '"bitNum":224'))
    assert open_table(tmp_path, clock, disk).get("orders", "g") is None


async def beat(connection: Connection, *subscriptions: Subscription) -> None:
    group = ConsumerGroup(
        group_name="g",
        consume_type="CONSUME_PASSIVELY",
        message_model="CLUSTERING",
        consume_from_where="CONSUME_FROM_LAST_OFFSET",
        subscription_data_set=subscriptions,
    )
    body = encode_body(Heartbeat(client_id="c", consumer_data_set=(group,)))
    assert (await connection.call(RequestCode.HEART_BEAT, body=body, timeout_s=3)).code == 0


def test_a_pull_is_told_if_the_expression_of_its_group_is_none_or_older(tmp_path: Path) -> None:
    settings = BrokerSettings(address="127.0.0.1", broker_name="b1", sql92_enabled=True)

    async def main() -> None:
        async with OneBroker(tmp_path, settings) as broker:
            await broker.send("orders", properties="a\x015\x02")
            connection = await broker.connect()

            async def pull(version: int) -> Command:
                header = broker.pull_header(
                    "orders", consumer_group="g", sys_flag=0, sub_version=version
                )
                fields = encode_header(header)
                return await connection.call(RequestCode.PULL_MESSAGE, fields, timeout_s=3)

            await beat(connection, sql("a > > 1", 7))
            refused = await pull(7)
            assert refused.code == ResponseCode.FILTER_DATA_NOT_EXIST
            assert "expression of its heartbeat may be wrong" in (refused.remark or "")
            await beat(connection, sql("a > 4", 8))
            assert len(records(await pull(8))) == 1
            assert (await pull(9)).code == ResponseCode.SUBSCRIPTION_NOT_LATEST
            await pass_time(6)
            path = tmp_path / "store" / "config" / "consumerFilter.json"
            groups = json.loads(path.read_text())["filterDataByTopic"]["orders"]["groupFilterData"]
            assert (groups["g"]["expression"], groups["g"]["dead"]) == ("a > 4", False)
            connection.close()
            await pass_time(6)
            groups = json.loads(path.read_text())["filterDataByTopic"]["orders"]["groupFilterData"]
            assert groups["g"]["dead"] is True

    run(main())
