"""The client: producers and consumers for downrange and for Apache RocketMQ 4.9 to 5.5."""
