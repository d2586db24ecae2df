"""Reports: what a run shows to people and writes to files."""
