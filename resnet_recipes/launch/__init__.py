"""Launching: start the ranks of a run, supervise them, and report how it ended."""
