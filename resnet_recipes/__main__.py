"""`python -m resnet_recipes` is `resnet-train`: what `torchrun -m` needs."""

import os
import sys

if __name__ == "__main__":
    # `-m` looks for modules where the user is, before all others: what lies there is data, not code of ours.
    sys.path[:] = [place for place in sys.path if os.path.abspath(place) != os.getcwd()]

    from resnet_recipes.cli import train

    train()
