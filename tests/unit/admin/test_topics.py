"""Topics, groups and brokers as an administrator sees and changes them."""

from pathlib import Path

import pytest
from unit.admin.operating import admin_of
from unit.broker.one_broker import pass_time
from unit.client.consuming import Seen, Site, until

from downrange.admin.errors import NothingThereError, WrongRequestError
from downrange.admin.groups import changed, is_user_group
from downrange.admin.topics import TopicWish, kind_of
from downrange.client.errors import BrokerRefusal
from downrange.model.topics import MessageQueue, Permission, SubscriptionGroupConfig
from downrange.testing.virtual_time import run


def test_the_layout_names_clusters_and_brokers(tmp_path: Path) -> None:
    async def main() -> None:
        async with Site(tmp_path, broker_names=("b", "a")) as site, admin_of(site) as admin:
            layout = await admin.layout()
            assert layout.clusters == ("DefaultCluster",)
            own = {"DefaultCluster", "DefaultCluster_REPLY_TOPIC", "a", "b"}
            assert layout.own_topics == own
            assert [(one.name, one.broker_id, one.address) for one in layout.brokers] == [
                ("a", 0, "127.0.0.1:10921"),
                ("b", 0, "127.0.0.1:10911"),
            ]
            assert [one.name for one in layout.chosen("DefaultCluster", "b")] == ["b"]
            with pytest.raises(NothingThereError, match="no cluster 'x', only DefaultCluster"):
                layout.chosen("x", None)
            with pytest.raises(NothingThereError, match="no master of broker 'c'; known are a, b"):
                layout.chosen(None, "c")

    run(main())


def test_a_cluster_without_brokers_says_what_to_start(tmp_path: Path) -> None:
    async def main() -> None:
        async with Site(tmp_path, broker_names=()) as site, admin_of(site) as admin:
            with pytest.raises(NothingThereError, match="no broker is registered"):
                (await admin.layout()).chosen(None, None)

    run(main())


def test_a_topic_is_made_changed_shown_and_deleted(tmp_path: Path) -> None:
    async def main() -> None:
        async with Site(tmp_path, broker_names=("a", "b")) as site, admin_of(site) as admin:
            masters = (await admin.layout()).masters()
            wish = TopicWish(
                topic="orders", read_queue_nums=4, write_queue_nums=2,
                attributes=("+message.type=NORMAL",),
            )  # fmt: skip
            await admin.topics.create(wish, masters)
            assert await admin.topics.wait_for_route("orders", {"a", "b"})
            state = await admin.topics.show("orders")
            assert sorted(state.configs) == ["a", "b"]
            config = state.configs["a"]
            assert (config.read_queue_nums, config.write_queue_nums) == (4, 2)
            assert config.attributes == {"message.type": "NORMAL"}
            assert state.groups == ()
            only_read = TopicWish(topic="orders", permission=Permission.READ)
            await admin.topics.create(only_read, masters[:1])
            await pass_time(0.1)
            configs = (await admin.topics.show("orders")).configs
            assert (configs["a"].perm, configs["b"].perm) == (4, 6)
            assert "orders" in await admin.topics.names()
            await admin.topics.delete("orders", "DefaultCluster")
            assert "orders" not in await admin.topics.names()
            with pytest.raises(NothingThereError, match="topic 'orders' does not exist"):
                await admin.topics.show("orders")

    run(main())


def test_stats_of_a_topic_are_those_of_all_its_brokers(tmp_path: Path) -> None:
    async def main() -> None:
        async with Site(tmp_path, broker_names=("a", "b")) as site, admin_of(site) as admin:
            await site.create("orders", 2)
            await site.send_many("orders", 5, queues=2, broker="a")
            await site.send("orders", b"x", 1, broker="b")
            stats = await admin.topics.stats("orders")
            held = {queue: (one.min_offset, one.max_offset) for queue, one in stats.items()}
            assert held == {
                MessageQueue("orders", "a", 0): (0, 3),
                MessageQueue("orders", "a", 1): (0, 2),
                MessageQueue("orders", "b", 0): (0, 0),
                MessageQueue("orders", "b", 1): (0, 1),
            }

    run(main())


@pytest.mark.parametrize("wish", [{"topic": "a b"}, {"topic": "x", "read_queue_nums": -1}])
def test_a_topic_that_cannot_be_is_refused_before_anything_is_sent(wish: dict[str, str]) -> None:
    with pytest.raises(WrongRequestError):
        TopicWish(**wish)  # type: ignore[arg-type]


def test_kinds_of_topics() -> None:
    kinds = [kind_of(topic) for topic in ("orders", "%RETRY%g", "%DLQ%g", "TBW102", "rmq_sys_x")]
    assert kinds == ["normal", "retry", "dlq", "system", "system"]
    assert kind_of("b1", {"b1"}) == "system"


def test_a_group_is_made_shown_and_deleted(tmp_path: Path) -> None:
    async def main() -> None:
        async with Site(tmp_path) as site, admin_of(site) as admin:
            masters = (await admin.layout()).masters()
            with pytest.raises(NothingThereError, match="group 'billing' does not exist"):
                await admin.groups.config("billing", masters)
            config = changed(
                SubscriptionGroupConfig(group_name="billing"), retry_max_times=3, broker_id=None
            )
            await admin.groups.create(config, masters)
            found = await admin.groups.config("billing", masters)
            assert found["b1"].retry_max_times == 3
            assert "billing" in filter(is_user_group, await admin.groups.configs(masters))
            await admin.groups.delete("billing", masters, keep_offsets=False)
            assert "billing" not in await admin.groups.configs(masters)
            with pytest.raises(WrongRequestError, match="group 'a b'"):
                await admin.groups.create(SubscriptionGroupConfig(group_name="a b"), masters)

    run(main())


def test_members_and_progress_of_a_group(tmp_path: Path) -> None:
    async def main() -> None:
        async with Site(tmp_path) as site, admin_of(site) as admin:
            await site.create("orders")
            masters = (await admin.layout()).masters()
            assert await admin.groups.members("g", masters) is None
            await site.send_many("orders", 3)
            seen = Seen()
            consumer = site.consumer("g")
            consumer.subscribe("orders", "*")
            consumer.listen(seen)
            await consumer.start()
            await until(lambda: len(seen.bodies) == 3)
            await pass_time(12)
            await site.send("orders", b"3")
            await until(lambda: len(seen.bodies) == 4)
            progress = await admin.groups.progress("g", masters)
            mine = progress.queues[MessageQueue("orders", "b1", 0)]
            assert (mine.broker_offset, mine.consumer_offset, progress.lag) == (4, 3, 1)
            members = await admin.groups.members("g", masters)
            assert members is not None
            assert members.message_model == "CLUSTERING"
            assert set(members.subscriptions) == {"orders", "%RETRY%g"}
            (client_id,) = members.clients
            info = await admin.groups.running_info("g", client_id, site.broker_address("b1"))
            assert {one.topic for one in info.subscription_set} == {"orders", "%RETRY%g"}
            assert (await admin.topics.show("orders")).groups == ("g",)
            await consumer.shutdown()

    run(main())


def test_settings_of_a_broker_are_read_and_changed(tmp_path: Path) -> None:
    async def main() -> None:
        async with Site(tmp_path) as site, admin_of(site) as admin:
            address = site.broker_address("b1")
            assert (await admin.brokers.config(address))["brokerName"] == "b1"
            assert await admin.brokers.change_config(address, {"fileReservedTime": "7"}) == ""
            assert (await admin.brokers.config(address))["fileReservedTime"] == "7"
            with pytest.raises(BrokerRefusal, match="no such setting: nonsense"):
                await admin.brokers.change_config(address, {"nonsense": "1"})
            facts = await admin.brokers.facts(address)
            assert facts.version == "V5_5_0"
            assert facts.uptime_s == 0
            assert facts.clock_ms is not None
            assert abs(facts.clock_ms - site.clock.wall_ms()) <= 1_000

    run(main())
