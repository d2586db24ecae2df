"""Everything a run will do and take, derived before it starts."""
