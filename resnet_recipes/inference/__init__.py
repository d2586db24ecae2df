"""Evaluate trained networks, predict classes and export."""
