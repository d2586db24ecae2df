"""Imports of the loaders' fork server, so that their processes need not import torch."""

import signal

from resnet_recipes.base.processes import STOP_SIGNALS

# The server must survive signals that stop a complete job, and so must workers from the start,
# because the trainer treats their death as a failure.
for number in STOP_SIGNALS:
    signal.signal(number, signal.SIG_IGN)
