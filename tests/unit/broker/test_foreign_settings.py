"""Keys of a broker.conf that was written for an Apache broker."""

import pytest

from downrange.broker.foreign_settings import REFUSED, judge
from downrange.broker.java_keys import JAVA_KEYS
from downrange.broker.settings import BrokerSettings, StoreFileSettings
from downrange.monitoring.settings import MonitoringSettings
from downrange.runtime.property_text import Property, read_properties
from downrange.runtime.settings import keys_of

OWN_KEYS = keys_of(BrokerSettings, StoreFileSettings, MonitoringSettings)
# Settings that RocketMQ does not have.
OURS_ALONE = {
    "bulkPullBytesMax",
    "bulkPullCountMax",
    "groupsMax",
    "queuesMax",
    "scrubBytesPerSecond",
    "topicsMax",
    "httpHost",
    "httpPort",
    "startWithoutCommitLog",
}
DEFAULTS_OF_5_5 = b"""\
storeType=default
configManagerVersion=v1
transRocksDBEnable=false
timerRocksDBEnable=false
indexRocksDBEnable=false
messageStorePlugIn=
enableConsumeQueueExt=false
enableLmq=false
enableMultiDispatch=false
enableDLegerCommitLog=false
enableControllerMode=false
duplicationEnable=false
brokerRole=ASYNC_MASTER
inSyncReplicas=1
minInSyncReplicas=1
allAckInSyncStateSet=false
aclEnable=false
authenticationEnabled=false
authorizationEnabled=false
useTLS=false
"""


@pytest.mark.parametrize(
    ("text", "parts"),
    [
        ("storeType=defaultRocksDB", ("in files here, not in RocksDB", "set it to default")),
        ("enableDLegerCommitLog=true", ("another format and place", "set it to false")),
        ("enableControllerMode = TRUE ", ("no replication",)),
        ("brokerRole=SLAVE", ("only masters", "set it to ASYNC_MASTER")),
        ("minInSyncReplicas=2", ("one copy of each message", "set it to 1")),
        ("aclEnable=true", ("no access control", "set it to false")),
        ("messageStorePlugIn=org.apache.rocketmq.tieredstore.TieredMessageStore", ("tiered",)),
    ],
)
def test_what_decides_about_the_data_and_is_not_built_is_refused(
    text: str, parts: tuple[str, ...]
) -> None:
    (refusal,) = judge(read_properties(text.encode(), "broker.conf"), OWN_KEYS).refusals
    key = text.partition("=")[0].strip()
    assert refusal.startswith(f"broker.conf, line 1: {key}=")
    assert all(part in refusal for part in parts), refusal


def test_every_refused_key_has_a_default_of_rocketmq_that_is_taken() -> None:
    properties = read_properties(DEFAULTS_OF_5_5)
    assert {entry.key for entry in properties} == REFUSED.keys()
    judgement = judge(properties, OWN_KEYS)
    assert (judgement.refusals, judgement.unknown) == ((), ())


def test_refused_keys_are_rocketmqs_and_so_are_ours_but_for_a_few() -> None:
    assert REFUSED.keys() <= JAVA_KEYS
    assert {key for key in OWN_KEYS if key not in JAVA_KEYS} <= OURS_ALONE
    assert len(JAVA_KEYS) > 500


def test_every_setting_of_rocketmq_that_names_a_place_is_honoured_or_accounted_for() -> None:
    places = {key for key in JAVA_KEYS if "path" in key.lower() or key.endswith("Dir")}
    assert {"storePathRootDir", "storePathCommitLog", "readOnlyCommitLogStorePaths"} <= places
    assert places - set(OWN_KEYS) == {
        # Of DLedger and of controllers, which are refused; without them RocketMQ reads none of it.
        "storePathDLedgerCommitLog", "storePathEpochFile", "storePathBrokerIdentity",
        # Of the tiered store, which is refused.
        "tieredStoreFilePath",
        # Of RocksDB, which is refused.
        "useSeparateStorePathForRocksdbCQ",
        # The file itself, and what it is set from.
        "brokerConfigPath", "authConfigPath",
    }  # fmt: skip


def test_other_keys_have_no_effect_and_misspelt_ones_come_with_what_was_meant() -> None:
    entries = [
        Property(key, "1")
        for key in ("transientStorePoolEnable", "flushDiskTyp", "storepathcommitlog", "colour")
    ]
    judgement = judge(entries, OWN_KEYS)
    assert [entry.key for entry in judgement.without_effect] == ["transientStorePoolEnable"]
    assert [(entry.key, meant) for entry, meant in judgement.unknown] == [
        ("flushDiskTyp", "flushDiskType"),
        ("storepathcommitlog", "storePathCommitLog"),
        ("colour", None),
    ]
