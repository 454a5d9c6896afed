"""docs/running.md, docs/settings.md and docs/api.md say what is true."""

import re
import runpy
import sys
from collections import deque
from pathlib import Path

import msgspec
import pytest

from downrange import sync
from downrange.app.dev_text import DevAddresses
from downrange.embedded import DevCluster, Parts
from downrange.monitoring.broker_metrics import collect_broker
from downrange.monitoring.consumer_lag import StoreTimes
from downrange.monitoring.exposition import Exposition
from downrange.monitoring.observed_nameserver import ObservedNameServer
from downrange.monitoring.process_metrics import add_process_families
from downrange.nameserver.view import NameServerView
from downrange.remoting.intake import Intake
from downrange.remoting.settings import ConnectionSettings
from downrange.runtime.disk import Disk
from downrange.runtime.loop_watch import LoopWatch

ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "docs" / "running.md").read_text(encoding="utf-8")


def test_the_table_of_settings_is_the_one_of_the_code() -> None:
    made = runpy.run_path(str(ROOT / "scripts" / "settings_page.py"))["page"]()
    written = (ROOT / "docs" / "settings.md").read_text(encoding="utf-8")
    assert made == written, "run `.venv/bin/python scripts/settings_page.py`"


@pytest.mark.skipif(
    sys.version_info[:2] != (3, 11), reason="other versions of Python write types differently"
)
def test_the_api_is_the_one_of_the_code() -> None:
    made = runpy.run_path(str(ROOT / "scripts" / "api_page.py"))["page"]()
    written = (ROOT / "docs" / "api.md").read_text(encoding="utf-8")
    assert made == written, "run `.venv/bin/python scripts/api_page.py`"


def test_the_line_of_json_is_what_dev_prints() -> None:
    (example,) = re.findall(r"^```json\n(.*?)\n```$", PAGE, re.MULTILINE | re.DOTALL)
    decoded = msgspec.json.decode(example, type=DevAddresses)
    assert msgspec.json.encode(decoded).decode() == example


def test_every_metric_is_named_on_the_page_and_none_besides() -> None:
    with DevCluster(parts=Parts(measures_requests=True)) as cluster:
        with sync.connect(cluster.name_servers) as mq:
            mq.send("orders", b"x")

        page = Exposition()

        async def collect() -> None:
            view = cluster.broker().view()
            assert view is not None
            deque(collect_broker(page, view, StoreTimes(), Disk(), 0), maxlen=0)

        cluster.run(collect())
    view = NameServerView(
        brokers_by_cluster={},
        topic_count=0,
        connection_count=0,
        watch=LoopWatch(),
        intake=Intake(ConnectionSettings(), lambda: 0.0),
    )
    deque(ObservedNameServer(lambda: view).collect(page), maxlen=0)
    add_process_families(page, "1")
    names = set(page.names)
    named = set(re.findall(r"`((?:rocketmq|downrange)_[a-z_]+)`", PAGE))
    assert {name for name in names if not name.startswith("process_")} == named
