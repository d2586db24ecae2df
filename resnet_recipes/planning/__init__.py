"""All that a run will do, derived before it starts."""
