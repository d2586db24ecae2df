"""The trained network that a command's words name."""

import os
from collections.abc import Sequence

from resnet_recipes.base.errors import RecipeError
from resnet_recipes.commands.places import run_place
from resnet_recipes.commands.progress import say
from resnet_recipes.jobs.opened import Opened, opened


def named(words: Sequence[str], usage: str, also: Sequence[str] = ()) -> Opened:
    """Open the network that the first word names, with the settings key=value of the others.

    Raises RecipeError.
    """
    if not words or (is_setting(words[0]) and not os.path.exists(words[0])):
        rule = "is missing: a run folder, a checkpoint or a weights file"
        raise RecipeError.of("RUN|FILE", None, rule, usage)
    found = opened(run_place("RUN|FILE", words[0]), words[1:], also)
    if found.network.note:
        say(f"note: {found.network.note}")
    return found


def is_setting(word: str) -> bool:
    """Return whether a word is written key=value."""
    return word.partition("=")[0].replace(".", "").replace("_", "").isalnum() and "=" in word
