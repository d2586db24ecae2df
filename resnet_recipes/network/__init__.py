"""The network: what is trained, and its weights as files."""
