"""Time, cost and accuracy: of runs on this machine, and as published. Reads files alone, without torch."""
