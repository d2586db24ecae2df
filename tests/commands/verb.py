"""`python -m tests.commands.verb` is `resnet-recipes`, for the nursery."""

from resnet_recipes.cli import main

if __name__ == "__main__":
    raise SystemExit(main())
