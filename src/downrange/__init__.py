"""RocketMQ in Python: compatible with Apache RocketMQ on the wire and on disk.

The names of the client are here; each is loaded when it is first used, so that a program pays only
for what it needs.
"""

import importlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from downrange.app.application import App
    from downrange.client.acl_signature import Credentials
    from downrange.client.client import Client, connect
    from downrange.client.consumer_settings import (
        LitePullSettings,
        MessageModel,
        PullConsumerSettings,
        PushConsumerSettings,
    )
    from downrange.client.errors import (
        BadAnswerError,
        BrokerRefusal,
        BrokerUnreachableError,
        ClientStateError,
        ClientTimeoutError,
        DuplicateGroupError,
        InvalidMessageError,
        InvalidStoredMessageError,
        NoNameServerError,
        NoRouteCause,
        NoRouteError,
        RequestTimeoutError,
        RocketMQError,
        RouteLimitError,
        TooMuchInFlightError,
        UnknownBrokerError,
    )
    from downrange.client.invalid_message import InvalidMessage, InvalidMessagePolicy
    from downrange.client.invalid_messages import InvalidMessageCounts
    from downrange.client.listeners import (
        ConcurrentContext,
        ConsumeStatus,
        OrderlyContext,
        OrderlyStatus,
    )
    from downrange.client.lite_pull_consumer import LitePullConsumer
    from downrange.client.message import Message, ReceivedMessage, SendReceipt, SendStatus
    from downrange.client.message_stream import MessageStream
    from downrange.client.producer import Producer
    from downrange.client.pull_consumer import PullConsumer
    from downrange.client.pulling import PullResult, PullStatus
    from downrange.client.push_consumer import PushConsumer
    from downrange.client.request_reply import make_reply
    from downrange.client.settings import ClientSettings, ProducerSettings
    from downrange.client.start_offset import ConsumeFromWhere
    from downrange.client.tls import TlsSettings
    from downrange.client.transaction_producer import (
        TransactionListener,
        TransactionProducer,
        TransactionReceipt,
        TransactionState,
    )
    from downrange.model.topics import MessageQueue

_MODULE_OF = {
    "App": "app.application",
    "BadAnswerError": "client.errors",
    "BrokerRefusal": "client.errors",
    "BrokerUnreachableError": "client.errors",
    "Client": "client.client",
    "ClientSettings": "client.settings",
    "ClientStateError": "client.errors",
    "ClientTimeoutError": "client.errors",
    "ConcurrentContext": "client.listeners",
    "ConsumeFromWhere": "client.start_offset",
    "ConsumeStatus": "client.listeners",
    "Credentials": "client.acl_signature",
    "DuplicateGroupError": "client.errors",
    "InvalidMessage": "client.invalid_message",
    "InvalidMessageCounts": "client.invalid_messages",
    "InvalidMessageError": "client.errors",
    "InvalidMessagePolicy": "client.invalid_message",
    "InvalidStoredMessageError": "client.errors",
    "LitePullConsumer": "client.lite_pull_consumer",
    "LitePullSettings": "client.consumer_settings",
    "Message": "client.message",
    "MessageModel": "client.consumer_settings",
    "MessageQueue": "model.topics",
    "MessageStream": "client.message_stream",
    "NoNameServerError": "client.errors",
    "NoRouteCause": "client.errors",
    "NoRouteError": "client.errors",
    "OrderlyContext": "client.listeners",
    "OrderlyStatus": "client.listeners",
    "Producer": "client.producer",
    "ProducerSettings": "client.settings",
    "PullConsumer": "client.pull_consumer",
    "PullConsumerSettings": "client.consumer_settings",
    "PullResult": "client.pulling",
    "PullStatus": "client.pulling",
    "PushConsumer": "client.push_consumer",
    "PushConsumerSettings": "client.consumer_settings",
    "ReceivedMessage": "client.message",
    "RequestTimeoutError": "client.errors",
    "RocketMQError": "client.errors",
    "RouteLimitError": "client.errors",
    "SendReceipt": "client.message",
    "SendStatus": "client.message",
    "TlsSettings": "client.tls",
    "TooMuchInFlightError": "client.errors",
    "TransactionListener": "client.transaction_producer",
    "TransactionProducer": "client.transaction_producer",
    "TransactionReceipt": "client.transaction_producer",
    "TransactionState": "client.transaction_producer",
    "UnknownBrokerError": "client.errors",
    "connect": "client.client",
    "make_reply": "client.request_reply",
}

__all__ = [
    "App",
    "BadAnswerError",
    "BrokerRefusal",
    "BrokerUnreachableError",
    "Client",
    "ClientSettings",
    "ClientStateError",
    "ClientTimeoutError",
    "ConcurrentContext",
    "ConsumeFromWhere",
    "ConsumeStatus",
    "Credentials",
    "DuplicateGroupError",
    "InvalidMessage",
    "InvalidMessageCounts",
    "InvalidMessageError",
    "InvalidMessagePolicy",
    "InvalidStoredMessageError",
    "LitePullConsumer",
    "LitePullSettings",
    "Message",
    "MessageModel",
    "MessageQueue",
    "MessageStream",
    "NoNameServerError",
    "NoRouteCause",
    "NoRouteError",
    "OrderlyContext",
    "OrderlyStatus",
    "Producer",
    "ProducerSettings",
    "PullConsumer",
    "PullConsumerSettings",
    "PullResult",
    "PullStatus",
    "PushConsumer",
    "PushConsumerSettings",
    "ReceivedMessage",
    "RequestTimeoutError",
    "RocketMQError",
    "RouteLimitError",
    "SendReceipt",
    "SendStatus",
    "TlsSettings",
    "TooMuchInFlightError",
    "TransactionListener",
    "TransactionProducer",
    "TransactionReceipt",
    "TransactionState",
    "UnknownBrokerError",
    "connect",
    "make_reply",
]


if not TYPE_CHECKING:  # a type checker shall complain about names that are not there

    def __getattr__(name: str) -> object:
        module = _MODULE_OF.get(name)
        if module is None:
            raise AttributeError(f"module 'downrange' has no attribute {name!r}")
        value = getattr(importlib.import_module(f"downrange.{module}"), name)
        globals()[name] = value
        return value


def __dir__() -> list[str]:
    return sorted([*globals(), *__all__])
