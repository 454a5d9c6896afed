"""Headers of the second phase of a transaction."""

from typing import Final

from downrange.protocol.headers.fields import Header
from downrange.protocol.integers import Int32, Int64

TRANSACTION_PENDING: Final = 0
TRANSACTION_COMMIT: Final = 8
TRANSACTION_ROLLBACK: Final = 12


class EndTransactionRequest(Header, frozen=True, kw_only=True):
    """END_TRANSACTION: the producer's verdict, one of the three constants above."""

    topic: str | None = None
    producer_group: str
    tran_state_table_offset: Int64
    commit_log_offset: Int64
    commit_or_rollback: Int32
    from_transaction_check: bool = False
    msg_id: str
    transaction_id: str | None = None


class CheckTransactionStateResponse(Header, frozen=True, kw_only=True):
    """A producer's answer to CHECK_TRANSACTION_STATE; clients send END_TRANSACTION instead."""

    producer_group: str
    tran_state_table_offset: Int64
    commit_log_offset: Int64
    commit_or_rollback: Int32
