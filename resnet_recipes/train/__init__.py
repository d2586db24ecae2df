"""Training: from a frozen recipe to weights."""
