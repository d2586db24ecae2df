"""What Hydra and OmegaConf are used for: reading values in Hydra's grammar, and merging recipes and overrides.

The rules of what wins are Hydra's: a file over its parents, an override over all files, the later
of two overrides. `hydra.compose` would compose its own configuration along with ours, which takes
most of its time.
"""

from collections.abc import Sequence
from functools import lru_cache
from itertools import islice
from typing import Any

from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.core.override_parser.types import Override, ValueType
from hydra.errors import HydraException
from omegaconf import OmegaConf
from omegaconf.errors import OmegaConfBaseException


@lru_cache(1024)  # the points of a sweep have most words in common
def _parsed(override: str) -> Override:
    return OverridesParser.create().parse_override(override)


def value_of(override: str) -> Any:
    """Return the value of an override such as "seed=7". Raises ValueError if Hydra cannot read it as one value."""
    try:
        parsed = _parsed(override)
        several = parsed.is_sweep_override()
    except (HydraException, ValueError, RecursionError):
        raise ValueError("cannot be read") from None
    if several:
        raise ValueError("must be one value")
    return parsed.value()


def texts_of(override: str, most: int) -> list[str]:
    """Return the values of a sweep such as "seed=1,2,3" or "seed=range(1,4)", at most `most`; empty if not a sweep.

    Raises ValueError for a sweep without a list of values.
    """
    try:
        parsed = _parsed(override)
    except (HydraException, ValueError, RecursionError):
        return []  # such as data=/a=b: the value is read literally
    if not parsed.is_sweep_override():
        return []
    if parsed.value_type not in (
        ValueType.CHOICE_SWEEP,
        ValueType.SIMPLE_CHOICE_SWEEP,
        ValueType.RANGE_SWEEP,
    ):
        raise ValueError("an interval or a pattern has no list of values to run")
    return list(islice(parsed.sweep_string_iterator(), most))


def composed(
    trees: Sequence[dict[str, Any]], overrides: Sequence[tuple[str, Any]]
) -> dict[str, Any]:
    """Merge trees, the most basic one first, and overrides such as ("seed", 7), the last of which wins.

    References are resolved. Raises ValueError if the trees do not fit together.
    """
    try:
        merged = OmegaConf.merge(*trees)
        for key, value in overrides:
            OmegaConf.update(merged, key, value, merge=True, force_add=True)
        return OmegaConf.to_container(merged, resolve=True)
    except (OmegaConfBaseException, RecursionError) as error:
        raise ValueError(" ".join(str(error).split())[:200]) from None
