"""The log on disk: passive, compatible with the store of Apache RocketMQ."""
