"""The command `resnet-recipes` as a module that `forks.run` can start: `tests.command_module`."""

from resnet_recipes.cli import main

if __name__ == "__main__":
    raise SystemExit(main())
