"""Typed headers of requests and responses, by subject."""
