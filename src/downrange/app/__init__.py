"""Processes and the command line: settings come in here, and parts become programs."""
