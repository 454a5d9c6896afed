"""Requests of administrators and their tools, by subject."""
