"""Loaded once into the server that loader workers are forked from, so that none of them has to import torch itself."""

import signal

import resnet_recipes.data.worker  # noqa: F401

# The server must outlive a SIGTERM to the whole job, as its workers do: the trainer takes its end for theirs.
signal.signal(signal.SIGTERM, signal.SIG_IGN)
