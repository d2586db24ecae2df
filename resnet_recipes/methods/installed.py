"""Methods of other packages, found by the entry-point group `resnet_recipes.methods`."""

import re
from collections.abc import Collection, Iterator
from dataclasses import is_dataclass
from importlib.metadata import EntryPoint, entry_points

from resnet_recipes.base.errors import NotReadyError
from resnet_recipes.methods.base import Method

GROUP = "resnet_recipes.methods"

_CARD = ("name", "cost", "gain", "avoid_when")


def installed(taken: Collection[str]) -> Iterator[type[Method]]:
    """Yield the methods of other packages, sorted by name.

    A recipe can only name methods that the user has installed; it never loads code itself.
    Raises NotReadyError for a method that cannot be used or whose name is in `taken`.
    """
    for entry in sorted(entry_points(group=GROUP), key=lambda entry: entry.name):
        try:
            cls = entry.load()
        except Exception as error:  # third-party code may raise anything
            raise _refused(entry, f"cannot be imported: {type(error).__name__}: {error}") from None
        if not (isinstance(cls, type) and issubclass(cls, Method) and is_dataclass(cls)):
            raise _refused(
                entry, "is not a dataclass that derives from resnet_recipes.methods.Method"
            )
        if missing := [name for name in _CARD if not isinstance(getattr(cls, name, None), str)]:
            raise _refused(entry, f"does not define {', '.join(missing)}")
        if (
            cls.name != entry.name
            or not re.fullmatch(r"[a-z][a-z0-9_]{0,63}", cls.name)
            or cls.name in taken
        ):
            raise _refused(
                entry, f"has the name {cls.name!r}, which is taken or differs from its entry point"
            )
        yield cls


def _refused(entry: EntryPoint, rule: str) -> NotReadyError:
    package = entry.dist.name if entry.dist else "it"
    return NotReadyError.of(f"method {entry.name}", entry.value, rule, f"pip uninstall {package}")
