"""The command `resnet-recipes` as a module that `forks.run` can start: `tests.commands.verb`."""

from resnet_recipes.cli import main

if __name__ == "__main__":
    raise SystemExit(main())
