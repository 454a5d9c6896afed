"""Bytes to values and back, as RocketMQ writes them; knows no socket and no file."""
