"""What a person most likely meant by a name that does not exist."""

import shlex
from collections.abc import Collection
from difflib import SequenceMatcher, get_close_matches

from resnet_recipes.recipe.foreign import setting_of

EVERY_SETTING = "resnet-train mild --cfg   prints every setting"
SHORT = 3  # letters of a name in which a wrong first one is no slip


def did_you_mean(name: str, known: Collection[str], value: str = "") -> str:
    """Return "did you mean mild?" for the known name most like `name`, or "".

    `value` follows the name ("=1.0").
    """
    meant = closest(name, known)
    return f"did you mean {shlex.quote(meant + value)}?" if meant else ""


def closest(name: str, known: Collection[str]) -> str:
    """Return the known dotted name that is most like `name`, or ""."""
    name = name[:80].lower()
    leaf = name.rsplit(".", 1)[-1]
    known = [key for key in known if not name.startswith(f"{key}.")]  # not its own section
    leaves = {key.rsplit(".", 1)[-1] for key in known}
    if leaf not in leaves and (meant := setting_of(leaf)) in known:
        return meant
    near = [key for key in known if len(name) > SHORT or key[0] == name[:1]]
    if whole := get_close_matches(name, near, n=1, cutoff=0.72):
        return whole[0]
    same_leaf = [key for key in known if key.rsplit(".", 1)[-1] == leaf]
    near_leaf = [
        key for key in known if SequenceMatcher(None, key.rsplit(".", 1)[-1], leaf).ratio() >= 0.8
    ]
    return max(
        same_leaf or near_leaf, key=lambda key: SequenceMatcher(None, key, name).ratio(), default=""
    )
