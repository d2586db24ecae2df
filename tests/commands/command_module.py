"""`resnet-recipes` as a module for `forks.run`: `tests.commands.command_module`."""

from resnet_recipes.cli import main

if __name__ == "__main__":
    raise SystemExit(main())
