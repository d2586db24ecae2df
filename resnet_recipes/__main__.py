"""`python -m resnet_recipes` is `resnet-train`: what `torchrun -m` needs."""

import os
import sys

if __name__ == "__main__":
    # `-m` searches the current folder for modules first, but the files there are the user's, not
    # our code.
    sys.path[:] = [place for place in sys.path if os.path.abspath(place) != os.getcwd()]

    from resnet_recipes.cli import train

    train()
