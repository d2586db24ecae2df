"""Methods of other packages, found by the entry-point group `resnet_recipes.methods`."""

import keyword
import re
import traceback
from collections.abc import Collection, Iterator
from dataclasses import is_dataclass
from importlib.metadata import entry_points
from typing import Any

from resnet_recipes.base.errors import Change, Command, NotReadyError, Problem, Statement
from resnet_recipes.base.section import Section
from resnet_recipes.base.text import get_first_line
from resnet_recipes.methods.base import Method

GROUP = "resnet_recipes.methods"

_CARD = ("name", "cost", "gain", "avoid_when")


def find_plug_ins(used_names: Collection[str]) -> Iterator[type[Method]]:
    """Yield the methods of other packages, sorted by name.

    A recipe can only name methods that the user has installed; it never loads code itself.
    Raises NotReadyError for a method that cannot be used or whose name is in `used_names`.
    """
    names = {*used_names}
    for entry in sorted(entry_points(group=GROUP), key=lambda entry: entry.name):
        try:
            cls = entry.load()
            fault = _find_fault(cls, entry.name, names)
        except (Exception, SystemExit) as error:  # third-party code may raise any exception
            fault = f"cannot be used: {_describe_error(error)}"
        if fault:
            fix = Command(f"pip uninstall {entry.dist.name if entry.dist else 'it'}")
            raise NotReadyError.of(f"method {entry.name}", entry.value, fault, fix)
        names.add(cls.name)
        yield cls


def _find_fault(cls: Any, name: str, used_names: Collection[str]) -> str:
    """Return why a class cannot be the method `name`, or "". Its code may raise any exception."""
    if not (isinstance(cls, type) and issubclass(cls, Method) and is_dataclass(cls)):
        return "is not a dataclass that derives from resnet_recipes.methods.Method"
    if missing := [name for name in _CARD if not isinstance(getattr(cls, name, None), str)]:
        return f"does not define {', '.join(missing)}"
    if cls.name != name:
        return f"has the name {cls.name!r}, which differs from its entry point"
    if name in used_names:
        return f"has the name {name!r}, which another method uses"
    if not re.fullmatch(r"[a-z][a-z0-9_]{0,63}", name):
        return f"has the name {name!r}; names are a letter a-z and up to 63 of a-z, 0-9 and _"
    if keyword.iskeyword(name) or hasattr(Section, name):
        return f"has the name {name!r}, which Python or the package reserves"
    cls()  # raises an error if its defaults are not valid
    return ""


def find_plug_in_problem(error: BaseException) -> Problem | None:
    """Return the problem of the installed method whose code raised an error, if any."""
    from resnet_recipes.methods import INSTALLED

    frames = list(traceback.walk_tb(error.__traceback__))
    for method in INSTALLED:
        package = method.__module__.partition(".")[0]
        own_frames = [
            (frame.f_code, line)
            for frame, line in frames
            if frame.f_globals.get("__name__", "").partition(".")[0] == package
        ]
        if own_frames:
            hook = own_frames[0][0].co_name
            code, line = own_frames[-1]
            clause = Statement(
                f"{hook} failed in {code.co_filename}:{line}: {_describe_error(error)}"
            )
            key = f"methods.{method.name}"
            return Problem(key, None, clause, Change(f"~{key}"))
    return None


def _describe_error(error: BaseException) -> str:
    """Return the class of an error and the first line of its message."""
    return f"{type(error).__name__}: {get_first_line(error)}"
