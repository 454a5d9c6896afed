"""Plain values of the messaging world: names, topics; no I/O, no encoding."""
