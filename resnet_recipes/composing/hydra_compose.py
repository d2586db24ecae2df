"""What Hydra is used for: reading values in its grammar, and composing recipe files and overrides into one tree.

A recipe file becomes a Hydra config whose `defaults` name the file it inherits from, so Hydra's own rules decide what
wins: a file over its parents, an override over all files. Hydra itself reads no file, starts no job, creates no folder.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from itertools import islice
from typing import Any

import hydra
from hydra.core.config_store import ConfigStore
from hydra.core.global_hydra import GlobalHydra
from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.core.override_parser.types import ValueType
from hydra.errors import HydraException
from omegaconf import OmegaConf
from omegaconf.errors import OmegaConfBaseException

#: Hydra 1.3 warns without this; later versions warn with it.
VERSION = {"version_base": "1.3"} if hydra.__version__.startswith("1.3") else {}


def value_of(override: str) -> Any:
    """Return the value of an override such as "++seed=7". Raises ValueError if Hydra cannot read it as one value."""
    try:
        parsed = OverridesParser.create().parse_override(override)
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
        parsed = OverridesParser.create().parse_override(override)
    except (HydraException, ValueError, RecursionError):
        return []                                   # such as data=/a=b: the value is read literally
    if not parsed.is_sweep_override():
        return []
    if parsed.value_type not in (ValueType.CHOICE_SWEEP, ValueType.SIMPLE_CHOICE_SWEEP, ValueType.RANGE_SWEEP):
        raise ValueError("an interval or a pattern has no list of values to run")
    return list(islice(parsed.sweep_string_iterator(), most))


def composed(trees: Sequence[dict[str, Any]], overrides: Sequence[str]) -> dict[str, Any]:
    """Compose trees, the most basic one first, and overrides. Raises ValueError if they do not fit together."""
    configs: dict[str, dict[str, Any]] = {}
    for index, tree in enumerate(trees):
        configs[f"resnet_recipes_{index}"] = {"defaults": [*list(configs)[-1:], "_self_"], **tree}
    try:
        with _stored(configs):
            return OmegaConf.to_container(hydra.compose(list(configs)[-1], list(overrides)), resolve=True)
    except (HydraException, OmegaConfBaseException, RecursionError) as error:
        raise ValueError(" ".join(str(error.__cause__ or error).split())[:200]) from None


@contextmanager
def _stored(configs: dict[str, dict[str, Any]]) -> Iterator[None]:
    """Let Hydra find these configs, then restore its state, for the notebook or program around this one."""
    store, outer = ConfigStore.instance(), GlobalHydra.instance().hydra
    GlobalHydra.instance().clear()
    try:
        for name, config in configs.items():
            store.store(name, config)
        with hydra.initialize(config_path=None, **VERSION):
            yield
    finally:
        GlobalHydra.instance().hydra = outer
        for name in configs:
            store.repo.pop(f"{name}.yaml", None)
