"""Imports of the server that loader processes are forked from, so that none of them imports torch itself."""

import signal

from resnet_recipes.data.loading.worker import STOPS

# The server must outlive what stops a whole job, and so must workers from their first moment: the trainer takes their
# end for a failure.
for number in STOPS:
    signal.signal(number, signal.SIG_IGN)
