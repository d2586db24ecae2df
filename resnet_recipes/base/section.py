"""The base class of recipe sections, which enforces the types of settings."""

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, ClassVar

from resnet_recipes.base.errors import BrokenRuleError, Fix, Hint, Problem, RecipeError, Value
from resnet_recipes.base.field_types import convert, find_dataclasses, get_field_types
from resnet_recipes.base.limits import IsDuration, find_limit_problems, get_limits
from resnet_recipes.base.suggestions import find_closest
from resnet_recipes.base.suggestions.values import add_likely_value


class Section:
    """Recipe settings: a dataclass that rejects unknown names and values of other types.

    Attributes that start with an underscore are internal state and may hold anything.
    """

    _prefix: ClassVar[str] = ""  # prefix of its settings in a recipe: "data."

    if not TYPE_CHECKING:  # a type checker that saw this would accept every name

        def __setattr__(self, name: str, value: object) -> None:
            """Convert and set a value. Raises RecipeError if the name or the type is wrong."""
            if not name.startswith("_"):
                value = fit_value(type(self), name, value, self._prefix)
            super().__setattr__(name, value)

    def problems(self) -> Iterator[Problem]:
        """Yield the problems with the values; keys are relative to the section ("alpha")."""
        for problem in find_limit_problems(self):
            value = getattr(self, problem.key)
            yield add_likely_value(problem, type(self), problem.key, value)


def fit_value(cls: type, name: str, value: object, prefix: str) -> Any:
    """Return a value converted to the type of a field. Raises RecipeError if that fails."""
    field_types = get_field_types(cls)
    key = f"{prefix}{name}"
    if name not in field_types:
        inside = [
            f"{section}.{inner}"
            for section, field_type in field_types.items()
            for option in find_dataclasses(field_type)
            for inner in get_field_types(option)
        ]
        likely_name = find_closest(key, [f"{prefix}{name}" for name in (*field_types, *inside)])
        fix: Fix = likely_name or Hint(f"settings: {', '.join(field_types)}")
        raise RecipeError([Problem.unknown_setting(key, value, fix)])
    try:
        return convert(value, field_types[name])
    except BrokenRuleError as error:
        clause = error.clause
        is_number = field_types[name] in (int, float)
        durations = [rule for rule in get_limits(cls).get(name, ()) if isinstance(rule, IsDuration)]
        if durations:
            clause = durations[0].find_broken_rule("")
        if is_number and isinstance(value, str) and value.replace(".", "", 1).isdigit():
            fix = Hint(f"write {value} without quotes")
            raise RecipeError.of(key, value, clause, fix) from None
        problem = add_likely_value(Problem(key, value, clause), cls, name, value)
        if field_types[name] is str and not isinstance(value, str):  # 2 in place of "2h"
            section = cls()
            setattr(section, name, str(value))
            broken = [wrong._replace(key=key) for wrong in section.problems() if wrong.key == name]
            quoted = problem._replace(fix=problem.fix or Value(f"'{value}'"))
            problem = next(iter(broken), quoted)
        raise RecipeError([problem]) from None
