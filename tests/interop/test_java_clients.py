"""Java clients, old and new, against our name server and broker, one scenario at a time.

With DOWNRANGE_ORACLE=1 (`make oracle`) the same tests run against Apache's servers.
"""

from collections.abc import Iterator

import pytest
from interop.client_cluster import ClientCluster, running_cluster
from interop.client_facts import EXPECTED
from interop.client_programs import observe
from interop.releases import SCENARIOS_4_9, SCENARIOS_5_5, Release

pytestmark = pytest.mark.interop

BINARY_AND_SECOND_PORT = {
    "rocketmq.serialize.type": "ROCKETMQ",
    "com.rocketmq.sendMessageWithVIPChannel": "true",
}


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ClientCluster]:
    with running_cluster(tmp_path_factory.mktemp("clients")) as running:
        yield running


@pytest.mark.parametrize("scenario", EXPECTED)
@pytest.mark.parametrize(
    "release", [SCENARIOS_5_5, SCENARIOS_4_9], ids=lambda release: str(release.version)
)
def test_a_java_client_observes_what_it_should(
    cluster: ClientCluster, release: Release, scenario: str
) -> None:
    name = f"{scenario}-{release.version.replace('.', '-')}"
    assert observe(cluster, release, scenario, name) == EXPECTED[scenario]


@pytest.mark.parametrize("scenario", ["sync", "transaction", "lite-assign"])
def test_a_java_client_may_write_binary_headers_and_use_the_second_port(
    cluster: ClientCluster, scenario: str
) -> None:
    seen = observe(cluster, SCENARIOS_5_5, scenario, f"{scenario}-binary", BINARY_AND_SECOND_PORT)
    assert seen == EXPECTED[scenario]
