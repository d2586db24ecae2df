"""Encoded images as a storage: crops of them become rows of a batch, in Python or by the native engine."""
