"""Typed JSON bodies of requests and responses, by subject."""
