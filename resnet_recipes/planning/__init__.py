"""Derive everything about a run before it starts."""
