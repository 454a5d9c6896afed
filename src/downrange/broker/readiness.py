"""What can keep a running broker from serving clients, one check per cause.

To add a cause, add a function that looks at the view and a line in `readiness_checks`.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Final

from downrange.broker.view import BrokerView
from downrange.model.topics import Permission

SYNC_S_MAX: Final = 10.0  # senders are told FLUSH_DISK_TIMEOUT after 5 s; a slow disk catches up


@dataclass(frozen=True, slots=True)
class Check:
    """One question about a server; `reason` says what is wrong and what to do, or None."""

    name: str  # for programs: it does not change
    reason: Callable[[], str | None]


def not_ready_text(view: BrokerView | None) -> str | None:
    """All that clients would notice, as one text for administrators; None if there is nothing."""
    if view is None:
        return None
    checks = (*health_checks(view), *readiness_checks(view))
    reasons = [reason for check in checks if (reason := check.reason()) is not None]
    return "; ".join(reasons) or None


def readiness_checks(view: BrokerView) -> tuple[Check, ...]:
    """What clients would notice."""
    return (
        Check("store", partial(_refused, view)),
        Check("dispatch", partial(_not_visible, view)),
        Check("sync", partial(_sync_hangs, view)),
        Check("tables", partial(_not_saved, view)),
        Check("permission", partial(_not_permitted, view)),
        Check("registration", partial(_not_registered, view)),
    )


def health_checks(view: BrokerView) -> tuple[Check, ...]:
    """What only a restart repairs."""
    return (Check("log", partial(_log_failed, view)),)


def _refused(view: BrokerView) -> str | None:
    refusal = view.store.refusal
    if refusal is None or view.store.flush_failure is not None:  # the latter fails the health check
        return None
    return f"sends are refused: {refusal.remark}"


def _not_visible(view: BrokerView) -> str | None:
    failure = view.store.dispatch_failure
    return None if failure is None else f"consumers do not see new messages: {failure}"


def _sync_hangs(view: BrokerView) -> str | None:
    if view.sync_wait_s <= SYNC_S_MAX:
        return None
    return f"sends time out: the disk has not finished a sync for {view.sync_wait_s:.0f} s"


def _not_saved(view: BrokerView) -> str | None:
    failure = view.tables.save_failure
    return None if failure is None else f"new topics and groups are refused: {failure}"


def _not_permitted(view: BrokerView) -> str | None:
    # As in RocketMQ name servers send producers elsewhere; one that comes anyway is served.
    effects = (
        (Permission.WRITE, "producers are sent elsewhere"),
        (Permission.READ, "pulls are refused"),
    )
    permission = view.settings.permission
    missing = [effect for bit, effect in effects if not permission & bit]
    if not missing:
        return None
    return f"{' and '.join(missing)}: brokerPermission is {permission}, 6 allows both"


def _not_registered(view: BrokerView) -> str | None:
    if view.is_known:
        return None
    return f"clients cannot find it: not registered with any of {view.settings.name_servers}"


def _log_failed(view: BrokerView) -> str | None:
    failure = view.store.flush_failure
    if failure is None:
        return None
    return f"read-only, the log could not be synced: {failure}; restart it when the disk is sound"
