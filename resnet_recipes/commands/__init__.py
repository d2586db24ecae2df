"""The commands, one per file."""

from importlib import import_module
from types import ModuleType

from resnet_recipes.command_line.usage import Usage

#: The commands of `resnet-recipes`, in the order of the overview. Each is a module in this
#: folder with USAGE, run(), and perhaps check(), and is imported when it is used. A check returns
#: the further arguments of run(), or None.
COMMANDS = (
    "ls",
    "show",
    "cp",
    "diff",
    "validate",
    "methods",
    "plan",
    "estimate",
    "teach",
    "runs",
    "watch",
    "stop",
    "compare",
    "report",
    "eval",
    "predict",
    "export",
    "convert",
    "doctor",
    "job",
)


def import_command(name: str) -> ModuleType:
    """Return the module of a command."""
    return import_module(f"resnet_recipes.commands.{name}")


def get_usage(name: str) -> Usage:
    """Return the usage of a command; "train" is `resnet-train`."""
    return import_command(name).USAGE
