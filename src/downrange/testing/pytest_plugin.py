"""Fixtures for pytest: a real RocketMQ cluster in the process of the test.

`rocketmq` is new for each test, `rocketmq_shared` is one for all tests of a run, emptied after each
of them, `rocketmq_clock` is the time of whichever of the two a test uses. Nothing is imported until
a test asks for one of them: who has downrange and does not test with it pays nothing.
"""

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from downrange.testing.rocketmq import RocketMQ, RocketMQClock


@pytest.fixture
def rocketmq() -> "Iterator[RocketMQ]":
    """A cluster of one broker for this test alone."""
    from downrange.testing.rocketmq import RocketMQ  # noqa: PLC0415

    with RocketMQ() as cluster:
        yield cluster


@pytest.fixture(scope="session")
def rocketmq_session() -> "Iterator[RocketMQ]":
    """A cluster of one broker for the whole run; tests take it as `rocketmq_shared`."""
    from downrange.testing.rocketmq import RocketMQ  # noqa: PLC0415

    with RocketMQ() as cluster:
        yield cluster


@pytest.fixture
def rocketmq_shared(rocketmq_session: "RocketMQ") -> "Iterator[RocketMQ]":
    """The cluster of the run, with no topic or group of an earlier test."""
    yield rocketmq_session
    rocketmq_session.clear()


@pytest.fixture
def rocketmq_clock(request: pytest.FixtureRequest) -> "Iterator[RocketMQClock]":
    """The frozen time of the cluster that this test uses; `advance` moves it."""
    is_shared = "rocketmq_shared" in request.fixturenames
    cluster: RocketMQ = request.getfixturevalue("rocketmq_shared" if is_shared else "rocketmq")
    cluster.clock.freeze()
    yield cluster.clock
    cluster.clock.thaw()
