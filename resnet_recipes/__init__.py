"""Train ResNet-50 and its family by recipes, in the least time for the accuracy you want.

`__all__` is the public API; only it follows semantic versioning. Importing the package loads
nothing heavy.
"""

import sys
from importlib import import_module
from types import ModuleType
from typing import Any

__version__ = "0.1.0"
__all__ = ["RecipeError", "compose", "data", "load", "methods", "optim", "plan", "train"]

#: The module of each public name, imported when the name is first used.
_HOMES = {
    "RecipeError": "library",
    "compose": "library",
    "load": "library",
    "data": "data",
    "methods": "methods",
    "optim": "optim",
    "plan": "plan",
    "train": "train",
}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    home = import_module(f"resnet_recipes.{_HOMES[name]}")
    return getattr(home, name) if _HOMES[name] == "library" else home


def __dir__() -> list[str]:
    return ["__version__", *__all__]


class _Called(ModuleType):
    """A module of this package that can also be called, as the library function of the same name."""

    def __call__(self, *arguments: Any, **named: Any) -> Any:
        name = self.__name__.rpartition(".")[2]
        return getattr(import_module("resnet_recipes.library"), name)(*arguments, **named)


class _Package(ModuleType):
    """This package: `plan` and `train` are modules, and also functions for users of the library."""

    def __setattr__(self, name: str, value: Any) -> None:
        if name in ("plan", "train") and type(value) is ModuleType:
            value.__class__ = _Called
        super().__setattr__(name, value)


sys.modules[__name__].__class__ = _Package
