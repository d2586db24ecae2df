"""What was typed after a command, told apart: its own flags, and words."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from resnet_recipes.errors import Problem, RecipeError


@dataclass
class Arguments:
    """Flags with their values ("" for those that take none), and everything else in order."""

    flags: dict[str, str] = field(default_factory=dict)
    words: list[str] = field(default_factory=list)

    def __contains__(self, flag: str) -> bool:
        return flag in self.flags


def split(argv: Sequence[str], flags: Mapping[str, str], example: str) -> Arguments:
    """Tell flags from words; `flags` names what each takes ("DIR"), or "" if nothing. Raises RecipeError with the right spelling."""
    found, problems = Arguments(), []
    ahead = iter(argv)
    for word in ahead:
        name, equals, value = word.partition("=")
        if not word.startswith("-") or word == "-":
            found.words.append(word)
        elif name not in flags:
            problems.append(_unknown(name, value if equals else next(ahead, ""), flags, example))
        elif flags[name]:
            value = value if equals else next(ahead, "")
            if not value or value.startswith("-"):
                problems.append(Problem(name, None, f"needs a value: {name} {flags[name]}"))
            found.flags[name] = value
        elif equals:
            problems.append(Problem(word, None, f"takes no value: {name}"))
        else:
            found.flags[name] = ""
    if problems:
        raise RecipeError(problems)
    return found


def _unknown(name: str, value: str, flags: Mapping[str, str], example: str) -> Problem:
    key = name.lstrip("-").replace("-", "_")
    spelled = f"{example} {key}={value}" if value and not value.startswith("-") and "=" not in value else f"flags: {', '.join(flags)}"
    return Problem(name, None, "is no flag; settings are written key=value", spelled)
