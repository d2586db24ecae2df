"""The base class of all sections of a recipe, whose settings keep their types."""

from collections.abc import Iterator
from dataclasses import fields
from difflib import get_close_matches
from typing import TYPE_CHECKING, Any, ClassVar

from resnet_recipes.base.duration import is_duration
from resnet_recipes.base.errors import Fix, Hint, Kind, Problem, RecipeError
from resnet_recipes.base.kinds import WrongTypeError, converted, dataclasses_in, kinds_of
from resnet_recipes.base.limits import broken_limits


class Section:
    """Settings of a recipe: a dataclass that refuses unknown names and values of other types.

    Names that begin with an underscore are an object's own state, and may hold anything.
    """

    _place: ClassVar[str] = ""  # of its settings in a recipe: "data."

    if not TYPE_CHECKING:  # a type checker that saw this would accept every name

        def __setattr__(self, name: str, value: object) -> None:
            """Set a setting. Raises RecipeError."""
            if not name.startswith("_"):
                value = fitted(type(self), name, value, self._place)
            super().__setattr__(name, value)

    def problems(self) -> Iterator[Problem]:
        """Yield what is wrong with the values; keys are relative to the section ("alpha")."""
        return broken_limits(self)


def fitted(cls: type, name: str, value: object, place: str) -> Any:
    """Return a value for a field of a dataclass, converted to its type. Raises RecipeError."""
    kinds, key = kinds_of(cls), f"{place}{name}"
    if name not in kinds:
        inside = [
            f"{section}.{name}"
            for section, kind in kinds.items()
            if any(name in kinds_of(option) for option in dataclasses_in(kind))
        ]
        meant = [*get_close_matches(name, kinds, n=1), *inside]
        fix: Fix = f"{place}{meant[0]}" if meant else Hint(f"settings: {', '.join(kinds)}")
        raise RecipeError.of(key, value, "setting", fix, Kind.UNKNOWN)
    try:
        return converted(value, kinds[name])
    except WrongTypeError as error:
        fix = _fix(cls, name, value, key)
        raise RecipeError.of(key, value, f"must be {error}", fix) from None


def _fix(cls: type, name: str, value: object, key: str) -> Fix:
    """Return what to write instead of a value of another type, or ""."""
    default = next(item.default for item in fields(cls) if item.name == name)
    if isinstance(default, str) and isinstance(value, int | float) and is_duration(default):
        return f"{key}={value}ep", f"{key}={value}ba"
    if (
        isinstance(value, str)
        and kinds_of(cls)[name] in (int, float)
        and value.replace(".", "", 1).isdigit()
    ):
        return Hint(f"write {value} without quotes")
    return ""
