"""`python -m resnet_recipes` is `resnet-train`: what `torchrun -m` needs."""

from resnet_recipes.cli import train

if __name__ == "__main__":
    train()
