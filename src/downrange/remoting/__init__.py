"""Frames over a connection: requests and replies in both directions, each with a deadline."""
