"""What the doctor finds in clusters that are ill, and that it leaves healthy ones alone."""

from dataclasses import replace
from pathlib import Path

import pytest
from unit.admin.operating import admin_of
from unit.broker.one_broker import pass_time
from unit.client.consuming import Seen, Site

from downrange.admin import findings
from downrange.admin.admin_client import AdminClient
from downrange.admin.brokers import BrokerFacts
from downrange.admin.doctor import Checked
from downrange.admin.findings import Severity
from downrange.admin.layout import BrokerAddress, Layout
from downrange.broker.settings import BrokerSettings
from downrange.client.session_table import SessionTable
from downrange.protocol.bodies.heartbeat import Subscription
from downrange.protocol.bodies.route import BrokerData, QueueData, TopicRoute
from downrange.testing.virtual_time import START_MS, run

B1 = BrokerAddress("c", "b1", 0, "10.0.0.7:10911")


def _names(checked: Checked) -> list[tuple[str, str, str]]:
    return [(one.severity.value, one.check, one.subject) for one in checked.findings]


def test_a_healthy_cluster_has_no_findings(tmp_path: Path) -> None:
    async def main() -> None:
        async with Site(tmp_path, broker_names=("a", "b")) as site, admin_of(site) as admin:
            await site.create("orders")
            checked = await admin.doctor.examine()
            # The disk of the machine that runs the tests is not ours to heal.
            assert [one for one in checked.findings if one.check != "disk"] == []
            assert (checked.name_servers, checked.brokers, checked.topics) == (1, 2, 1)

    run(main())


def test_servers_that_are_not_what_they_should_be(tmp_path: Path) -> None:
    async def main() -> None:
        async with Site(tmp_path) as site:
            wrong = replace(
                site.client_settings(),
                name_servers=("127.0.0.1:10911", "127.0.0.1:1", *site.name_server_addresses),
            )
            table = SessionTable(nonce=1, around=site.surroundings())
            async with AdminClient(wrong, sessions=table) as admin:
                checked = await admin.doctor.examine(topics=["TBW102"])
                found = sorted(one for one in _names(checked) if one[1] != "disk")
                assert found == [
                    ("error", "name-server", "127.0.0.1:1"),
                    ("error", "name-server", "127.0.0.1:10911"),
                ]
                await site.stop_broker("b1")
                checked = await admin.doctor.examine()
                assert ("error", "brokers", "127.0.0.1:9876") in _names(checked)

    run(main())


def test_a_broker_that_died_is_unreachable_where_it_was(tmp_path: Path) -> None:
    async def main() -> None:
        async with Site(tmp_path) as site, admin_of(site) as admin:
            site.network.doors.pop(site.broker_port("b1"))
            checked = await admin.doctor.examine()
            assert _names(checked) == [("error", "advertised-address", "b1 (id 0)")]
            assert "is registered at 127.0.0.1:10911" in checked.findings[0].text

    run(main())


def test_why_a_topic_has_no_route(tmp_path: Path) -> None:
    async def main() -> None:
        for creates in (True, False):
            settings = BrokerSettings(auto_create_topics=creates)
            folder = tmp_path / str(creates)
            async with Site(folder, broker_settings=settings) as site, admin_of(site) as admin:
                checked = await admin.doctor.examine(topics=["nix"])
                (finding,) = [one for one in checked.findings if one.check == "route"]
                assert finding.severity is (Severity.WARNING if creates else Severity.ERROR)
                wanted = "the first send creates it" if creates else "no broker creates topics"
                assert wanted in finding.text

    run(main())


def test_members_of_a_group_that_want_different_things(tmp_path: Path) -> None:
    async def main() -> None:
        async with Site(tmp_path) as site, admin_of(site) as admin:
            await site.create("orders")
            consumers = [site.consumer("g"), site.consumer("g")]
            for consumer, tags in zip(consumers, ("a || b", "b"), strict=True):
                consumer.subscribe("orders", tags)
                consumer.listen(Seen())
                await consumer.start()
            members = admin.groups.members
            masters = (await admin.layout()).masters()
            for _ in range(60):
                await pass_time(1)
                known = await members("g", masters)
                if known is not None and len(known.clients) == 2:
                    break
            checked = await admin.doctor.examine(groups=["g"])
            (finding,) = [one for one in checked.findings if one.check == "subscriptions"]
            assert finding.subject == "g"
            assert "orders 'a || b'" in finding.text
            assert "orders 'b'" in finding.text
            for consumer in consumers:
                await consumer.shutdown()

    run(main())


def _facts(**table: str) -> BrokerFacts:
    return BrokerFacts(table)


@pytest.mark.parametrize(
    ("ratio", "severity"),
    [("0.74", None), ("-1.0", None), ("x", None), ("0.75", "warning"), ("0.86", "error"),
     ("0.95", "error")],
)  # fmt: skip
def test_a_disk_that_is_nearly_full(ratio: str, severity: str | None) -> None:
    finding = findings.disk("b1", _facts(commitLogDiskRatio=ratio))
    assert (finding.severity.value if finding else None) == severity


@pytest.mark.parametrize(("off_ms", "is_found"), [(0, False), (4_000, False), (60_000, True)])
@pytest.mark.parametrize("sign", [1, -1])
def test_a_clock_that_is_wrong(off_ms: int, sign: int, *, is_found: bool) -> None:
    facts = _facts(bootTimestamp=str(START_MS), runtime="[ 0 days, 1 hours, 0 minutes, 5 seconds ]")
    theirs_ms = START_MS + 3_605_000
    finding = findings.skew("b1", facts, theirs_ms - sign * off_ms)
    assert (finding is not None) == is_found
    if finding is not None:
        assert ("ahead of" if sign > 0 else "behind") in finding.text
    assert findings.skew("b1", _facts(), 0) is None


@pytest.mark.parametrize(
    ("address", "name_server", "remedy"),
    [
        ("172.17.0.2:10911", "203.0.113.5:9876", "brokerIP1"),
        ("203.0.113.5:10911", "203.0.113.5:9876", "is the broker running"),
    ],
)
def test_an_address_of_a_container_has_a_remedy_of_its_own(
    address: str, name_server: str, remedy: str
) -> None:
    broker = replace(B1, address=address)
    assert remedy in findings.unreachable(broker, "refused", [name_server]).remedy


def test_a_loopback_address_is_wrong_only_if_others_have_to_reach_it() -> None:
    local = replace(B1, address="127.0.0.1:10911")
    assert findings.loopback(local, ["127.0.0.1:9876"]) is None
    assert findings.loopback(local, ["localhost:9876"]) is None
    assert findings.loopback(B1, ["10.0.0.7:9876"]) is None
    assert findings.loopback(local, ["10.0.0.7:9876"]) is not None


def test_name_servers_that_know_different_brokers() -> None:
    found = findings.differing_layouts({"x:1": Layout((B1,)), "y:1": Layout(())})
    assert [(one.subject, one.check) for one in found] == [("y:1", "name-server")]
    assert findings.differing_layouts({"x:1": Layout((B1,)), "y:1": Layout((B1,))}) == []


@pytest.mark.parametrize(
    ("perm", "broker_id", "text"),
    [(6, 0, None), (2, 0, "cannot be read"), (4, 0, "no broker gives it write"),
     (6, 1, "living master")],
)  # fmt: skip
def test_a_route_that_cannot_be_used(perm: int, broker_id: int, text: str | None) -> None:
    route = TopicRoute(
        queue_datas=(
            QueueData(broker_name="b1", read_queue_nums=1, write_queue_nums=1, perm=perm),
        ),
        broker_datas=(BrokerData(broker_name="b1", broker_addrs={broker_id: "10.0.0.7:1"}),),
    )
    finding = findings.unusable_route("orders", route)
    assert (finding is None) == (text is None)
    if finding is not None and text is not None:
        assert text in finding.text


def test_the_same_tags_in_another_order_are_the_same() -> None:
    one = Subscription(topic="t", sub_string="a || b", tags_set=("a", "b"))
    other = Subscription(topic="t", sub_string="b||a", tags_set=("b", "a"))
    assert findings.differing_subscriptions("g", {"x": [one], "y": [other]}) is None
    assert findings.differing_subscriptions("g", {"x": [one]}) is None


def test_a_topic_that_only_the_broker_knows() -> None:
    assert "has not told the name servers" in findings.missing_route("t", ["b1"], []).text


def test_two_brokers_of_the_same_name_are_found(tmp_path: Path) -> None:
    async def main() -> None:
        async with Site(tmp_path, broker_names=("a", "b")) as site, admin_of(site) as admin:
            # The second broker starts again, under the name of the first.
            await site.stop_broker("b")
            await site.start_broker("b", as_name="a")
            checked = await admin.doctor.examine()
            (clash,) = [one for one in checked.findings if one.check == "broker-name"]
            assert (clash.severity, clash.subject) == (Severity.ERROR, "a (id 0)")
            assert "another broker at 127.0.0.1:10921" in clash.text

    run(main())


def test_name_servers_that_know_different_addresses_of_one_broker() -> None:
    elsewhere = replace(B1, address="10.0.0.8:10911")
    (finding,) = findings.name_clashes({"n1": Layout((B1,)), "n2": Layout((elsewhere,))})
    assert finding.text == "is registered at 10.0.0.7:10911 and at 10.0.0.8:10911"
    assert findings.name_clashes({"n1": Layout((B1,)), "n2": Layout((B1,))}) == []


def test_a_clash_that_a_broker_reports_is_a_finding() -> None:
    assert findings.reported_clash(B1, BrokerFacts({})) is None
    finding = findings.reported_clash(B1, BrokerFacts({"registrationClash": "two of them"}))
    assert finding is not None
    assert finding.text == "reports: two of them"


def test_what_keeps_a_broker_from_serving_is_an_error() -> None:
    assert findings.not_ready("b1", BrokerFacts({})) is None
    finding = findings.not_ready("b1", BrokerFacts({"notReady": "sends are refused: disk full"}))
    assert finding is not None
    assert (finding.severity.value, finding.check) == ("error", "not-ready")
    assert finding.text == "sends are refused: disk full"


def test_damage_that_the_scrubber_of_a_broker_found_is_a_finding() -> None:
    assert findings.store_damage("b1", BrokerFacts({})) is None
    finding = findings.store_damage("b1", BrokerFacts({"storeDamage": "2 places"}))
    assert finding is not None
    assert (finding.subject, finding.text) == ("b1", "2 places")
