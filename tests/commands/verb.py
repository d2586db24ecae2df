"""`python -m tests.commands.verb` runs `resnet-recipes` in a fork."""

from resnet_recipes.cli import main

if __name__ == "__main__":
    raise SystemExit(main())
