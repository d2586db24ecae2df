"""Loader processes, and the shared memory that they fill."""
