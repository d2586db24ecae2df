"""Train ResNets and other image classifiers with published recipes.

`__all__` is the public API; only it follows semantic versioning. Importing the package loads
nothing heavy.
"""

import sys
from importlib import import_module
from typing import Any

__version__ = "0.1.0"
__all__ = [
    "RecipeError",
    "compose",
    "data",
    "estimate",
    "evaluate",
    "load",
    "methods",
    "optim",
    "plan",
    "predict",
    "prepare",
    "teach",
    "train",
]

#: Public names that are modules, with their paths; all others are in the module api. Each is
#: imported on first use.
_MODULES = {"data": "data", "methods": "methods", "optim": "methods.optimizers"}

#: A message for Windows, before the import of a module that it lacks.
_NEEDS_LINUX = "this program needs Linux; Windows runs it in WSL:  wsl --install"


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    if sys.platform == "win32":
        raise ImportError(_NEEDS_LINUX)
    if path := _MODULES.get(name):
        return import_module(f"resnet_recipes.{path}")
    return getattr(import_module("resnet_recipes.api"), name)


def __dir__() -> list[str]:
    return ["__version__", *__all__]
