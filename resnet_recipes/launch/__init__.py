"""Launching: start the ranks of a run, stay with them, and tell how it ended."""
