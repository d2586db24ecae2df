"""`python -m tests.commands.verb` runs `resnet-recipes` in the nursery."""

from resnet_recipes.cli import main

if __name__ == "__main__":
    raise SystemExit(main())
