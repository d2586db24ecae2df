"""The points of a sweep.

Every combination of the values in words such as `seed=1,2,3`, `~methods.sam,ema`.
"""

from collections.abc import Sequence
from itertools import product

from resnet_recipes.base.errors import Problem, RecipeError
from resnet_recipes.recipe.hydra_compose import texts_of

#: The budgets of the papers' trade-off curves, in epochs: `epochs=curve`.
CURVE = "22.5,30,54,60,72,90"

MAX_POINTS = 1000


def points(words: Sequence[str]) -> list[list[str]]:
    """Return the words of each run, the last sweep changing fastest.

    Raises RecipeError if one cannot be listed.
    """
    choices, problems, count = [], [], 1
    for word in words:
        try:
            choices.append(_choices(word))
            count *= len(choices[-1])
        except ValueError as error:
            problems.append(Problem(word, None, str(error), "seed=1,2,3 or seed=range(1,4)"))
    if count > MAX_POINTS:
        problems.append(
            Problem(
                "-m", None, f"would start at least {count:,} runs; the maximum is {MAX_POINTS:,}"
            )
        )
    RecipeError.refuse(problems)
    return [list(point) for point in product(*choices)]


def _choices(word: str) -> list[str]:
    """Return the words that one word stands for.

    Itself, unless it holds several values in Hydra's grammar.
    """
    key, equals, value = word.partition("=")
    if word.startswith("~") and not equals:  # ~methods.sam,ema: without the one, without the other
        section, dot, names = word.rpartition(".")
        return [f"{section}{dot}{name}" for name in names.split(",")]
    if not equals:
        return [word]
    value = CURVE if (key, value) == ("epochs", "curve") else value
    return [f"{key}={text}" for text in texts_of(f"{key}={value}", MAX_POINTS + 1)] or [word]
