"""RocketMQ in Python: compatible with Apache RocketMQ on the wire and on disk."""
