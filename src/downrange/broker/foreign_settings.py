"""Settings of Apache RocketMQ that this broker does not have: which stop a start, which do not.

A key that decides where data lives, in which format, how many copies there are or who may write
must never be passed over: the broker would start empty, hide messages, or promise what it does not
keep. All other keys tune what is built differently here, so a file of an Apache broker may keep
them. A value that is RocketMQ's default never stops a start.
"""

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import Final

from downrange.broker.java_keys import JAVA_KEYS
from downrange.runtime.property_text import Property
from downrange.runtime.settings import nearest_key


@dataclass(frozen=True, slots=True)
class _Refusal:
    allowed: frozenset[str]
    why: str
    remedy: str


def _only(allowed: str, why: str, remedy: str) -> _Refusal:
    return _Refusal(frozenset(allowed.split("|")), why, remedy)


def _off(why: str, remedy: str = "set it to false") -> _Refusal:
    return _only("false", why, remedy)


_ONE_COPY: Final = (
    "this broker keeps one copy of each message and would acknowledge before there are more"
)
_NO_ACCESS_CONTROL: Final = "there is no access control yet, so every client would be let in"
_CLOSE_NETWORK: Final = "set it to false and keep the ports inside a network that you trust"

REFUSED: Final[Mapping[str, _Refusal]] = {
    # In which format data lives.
    "storeType": _only(
        "default|",
        "consume queues are kept in files here, not in RocksDB",
        "set it to default; the queues are then built from the commit log",
    ),
    "configManagerVersion": _only(
        "v1", "topics, groups and offsets are kept as JSON here, not in RocksDB", "set it to v1"
    ),
    "transRocksDBEnable": _off("transactions are kept in the commit log here, not in RocksDB"),
    "timerRocksDBEnable": _off("timers are not kept in RocksDB here"),
    "indexRocksDBEnable": _off("keys are kept in index files here, not in RocksDB"),
    "messageStorePlugIn": _only(
        "",
        "store plug-ins such as the tiered store are Java classes, so messages that were moved"
        " there could not be read",
        "remove it",
    ),
    "enableConsumeQueueExt": _off("consume queues with extension files cannot be read here"),
    "enableLmq": _off("light message queues are not built, so their messages could not be found"),
    "enableMultiDispatch": _off(
        "light message queues are not built, so their messages could not be found"
    ),
    # Where it lives, how many copies there are, and who may write it.
    "enableDLegerCommitLog": _off(
        "the commit log of DLedger has another format and place, and other brokers write it, too",
        "run an Apache broker on this store, or set it to false for a store that never had DLedger",
    ),
    "enableControllerMode": _off("there is no replication, so no controller can choose a master"),
    "duplicationEnable": _off("there is no replication that would confirm offsets"),
    "brokerRole": _only(
        "async_master|sync_master", "only masters are served", "set it to ASYNC_MASTER"
    ),
    "inSyncReplicas": _only("1", _ONE_COPY, "set it to 1"),
    "minInSyncReplicas": _only("1", _ONE_COPY, "set it to 1"),
    "allAckInSyncStateSet": _off(_ONE_COPY),
    "aclEnable": _off(_NO_ACCESS_CONTROL, _CLOSE_NETWORK),
    "authenticationEnabled": _off(_NO_ACCESS_CONTROL, _CLOSE_NETWORK),
    "authorizationEnabled": _off(_NO_ACCESS_CONTROL, _CLOSE_NETWORK),
    "useTLS": _off("the broker speaks no TLS to name servers and other brokers", _CLOSE_NETWORK),
}


@dataclass(frozen=True, slots=True)
class Judgement:
    """What is to be said about the keys of a file."""

    refusals: tuple[str, ...]
    without_effect: tuple[Property, ...]
    unknown: tuple[tuple[Property, str | None], ...]  # with the key that may have been meant


def judge(properties: Iterable[Property], own_keys: Collection[str]) -> Judgement:
    """Sort the keys of a file; `own_keys` are those that this broker reads."""
    refusals, without_effect, unknown = [], [], []
    known = JAVA_KEYS.union(own_keys)
    for entry in properties:
        refusal = REFUSED.get(entry.key)
        if refusal is not None and entry.value.strip().lower() not in refusal.allowed:
            refusals.append(
                f"{entry.place}: {entry.key}={entry.value.strip()} is not supported:"
                f" {refusal.why}; {refusal.remedy}"
            )
        elif entry.key in own_keys:
            continue
        elif entry.key in JAVA_KEYS:
            without_effect.append(entry)
        else:
            unknown.append((entry, nearest_key(entry.key, known)))
    return Judgement(tuple(refusals), tuple(without_effect), tuple(unknown))
