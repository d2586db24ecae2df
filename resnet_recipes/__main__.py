"""Make `python -m resnet_recipes` run `resnet-train`, for `torchrun -m`."""

import os
import sys

if __name__ == "__main__":
    # `-m` searches for modules in the current folder first, but it contains the user's files, not
    # our code.
    sys.path[:] = [folder for folder in sys.path if os.path.abspath(folder) != os.getcwd()]

    from resnet_recipes.cli import train

    train()
