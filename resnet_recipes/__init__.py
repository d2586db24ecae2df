"""Train ResNet-50 and its family by recipes, in the least time for the accuracy you want.

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

#: The module of each public name, imported when the name is first used.
_HOMES = dict.fromkeys(__all__, "api") | {name: name for name in ("data", "methods", "optim")}

#: What is wrong with Windows, before a module that only Unix has is missing.
_NEEDS_LINUX = "this program needs Linux; Windows runs it in WSL:  wsl --install"


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    if sys.platform == "win32":
        raise ImportError(_NEEDS_LINUX)
    home = import_module(f"resnet_recipes.{_HOMES[name]}")
    return home if _HOMES[name] == name else getattr(home, name)


def __dir__() -> list[str]:
    return ["__version__", *__all__]
