"""The client for programs that block: the same names, their I/O in a thread of its own.

A handler may block for as long as it likes and no heartbeat is late. Every call has a deadline.
"""

from downrange.sync.client import Client, MessageStream, connect
from downrange.sync.consumers import LitePullConsumer, PullConsumer, PushConsumer
from downrange.sync.producers import Producer, TransactionProducer

__all__ = [
    "Client",
    "LitePullConsumer",
    "MessageStream",
    "Producer",
    "PullConsumer",
    "PushConsumer",
    "TransactionProducer",
    "connect",
]
