"""One rank as a process: its signals, lock, heartbeat and ending."""
