"""Time, cost and accuracy: of runs on this machine, and as published.

Only reads files, and needs no torch.
"""
