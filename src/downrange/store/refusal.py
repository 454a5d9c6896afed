"""Why a store takes no message, the reason that matters most first."""

from downrange.store.disk_watch import DiskState
from downrange.store.errors import AppendRefusedError, PutStatus


def refusal_of(
    *,
    is_open: bool,
    is_slave: bool,
    sync_failure: OSError | None,
    disk_state: DiskState,
    dispatch_stall: str | None,
) -> AppendRefusedError | None:
    """The error that every append raises; None if messages are taken."""
    if not is_open:
        return AppendRefusedError(PutStatus.SHUT_DOWN, "the store is not open")
    if is_slave:
        return AppendRefusedError(PutStatus.SLAVE, "a slave takes messages from its master only")
    if sync_failure is not None:
        reason = f"the log could not be synced ({sync_failure}); restart when the disk is sound"
        return AppendRefusedError(PutStatus.NOT_WRITABLE, reason)
    if disk_state.is_full:
        return AppendRefusedError(PutStatus.DISK_FULL, str(disk_state))
    if dispatch_stall is not None:
        return AppendRefusedError(PutStatus.DISPATCH_STALLED, dispatch_stall)
    return None
