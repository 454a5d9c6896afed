"""Plain values of the messaging world: messages, names, topics; no I/O, no encoding."""
