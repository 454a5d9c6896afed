"""What a process stands on: clock, disk, durable files; knows nothing of RocketMQ."""
