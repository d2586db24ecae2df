"""What a run costs on this machine, and the durations and sizes that fit it."""
