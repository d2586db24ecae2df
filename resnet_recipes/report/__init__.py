"""Reports: what a run tells people and files."""
