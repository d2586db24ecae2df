"""The network that is trained, and its weights files."""
