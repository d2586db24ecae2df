"""Loaded once into the server that loader workers are forked from, so that none of them has to import torch itself."""

import signal

import resnet_recipes.data.workers.worker  # noqa: F401

# The server must outlive what stops a whole job, and so must workers from their first moment: the trainer takes their end for a failure.
signal.signal(signal.SIGTERM, signal.SIG_IGN)
signal.signal(signal.SIGINT, signal.SIG_IGN)
