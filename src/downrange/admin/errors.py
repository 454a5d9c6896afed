"""What can go wrong when a cluster is operated, beside what the client knows."""

from downrange.client.errors import RocketMQError


class NothingThereError(RocketMQError):
    """The topic, group, message or broker that was asked for does not exist."""


class WrongRequestError(RocketMQError):
    """What was asked for cannot be meant; nothing was sent."""
