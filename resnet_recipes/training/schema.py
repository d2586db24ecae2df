"""What the state in a checkpoint must look like before use: anyone may have written it."""

import itertools
import math
from collections.abc import Iterator
from typing import Any

from torch import Tensor

from resnet_recipes.network.archive import is_plain
from resnet_recipes.run_folder.metrics import Metrics
from resnet_recipes.training.run import Run

#: Every field of a state, with its type.
_FIELDS: dict[str, type] = {
    "step": int,
    "seconds": float,
    "owes_evaluation": bool,
    "top1": float,
    "model": dict,
    "optimizer": dict,
    "methods": dict,
    "precision": dict,
    "best": dict,
    "computed_by": dict,
    "teachers": dict,
    "recipe": dict,
    "classes": list,
    "train_examples": int,
    "train_digest": str,
    "backend": str,
    "dtype": str,
    "device": str,
    "world_size": int,
    "threads": int,
    "versions": dict,
}

#: Levels of nesting in a recipe: sections, methods, their settings, lists, and one to spare.
_DEPTH = 5


def malformed(state: dict[str, Any], total_steps: int) -> Iterator[str]:
    """Yield what in `state` has the wrong type or range for any run.

    If nothing has, its fields can be compared.
    """
    wrong = [
        name
        for name, kind in _FIELDS.items()
        if not isinstance(state.get(name), kind) or isinstance(state[name], bool) != (kind is bool)
    ]
    if wrong:
        yield f"{', '.join(wrong)}: missing or of the wrong type"
        return
    if not 0 <= state["step"] <= total_steps:
        yield f"step {state['step']} is outside the run's {total_steps}"
    if (
        not 0 <= state["seconds"] < math.inf
        or min(state["world_size"], state["threads"], state["train_examples"]) < 1
    ):
        yield "seconds, world_size, threads or train_examples: out of range"
    if state["best"] and not _is_best(state["best"], total_steps):
        yield "best: not an evaluation with its weights"
    if not 0 <= state["top1"] <= 100:
        yield "top1: not a percentage"
    if not all(type(text) is str for text in (*state["classes"], state["versions"].get("torch"))):
        yield "classes or versions: not text"
    for name in ("computed_by", "teachers"):
        if not all(type(text) is str for text in itertools.chain(*state[name].items())):
            yield f"{name}: not text"
    if not is_plain(state["recipe"], _DEPTH):
        yield "recipe: not plain values"
    if not all(
        type(value) in (int, float) and 0 <= value < math.inf
        for value in state["precision"].values()
    ):
        yield "precision: not finite numbers"


def misfits(run: Run, state: dict[str, Any]) -> Iterator[str]:
    """Yield each tensor in `state` that is not of the shape and dtype that `run` needs."""
    model = run.model.state_dict()
    for name in [*model, *(name for name in state["model"] if name not in model)]:
        yield from _unlike(f"model {name}", model.get(name), state["model"].get(name))
    best = state["best"].get("weights", model)
    for name in model | best:
        yield from _unlike(f"best {name}", model.get(name), best.get(name))
    for name, value in state["methods"].items():
        method, _, key = str(name).partition(".")
        if method not in run.methods.methods or not isinstance(value, Tensor):
            yield f"methods {name}: not part of any method of this run"
        elif key in model:
            yield from _unlike(f"methods {name}", model[key], value)
    parameters = [
        parameter for group in run.optimizer.param_groups for parameter in group["params"]
    ]
    kept = state["optimizer"].get("state")
    for index, tensors in kept.items() if isinstance(kept, dict) else [(None, None)]:
        if (
            type(index) is not int
            or not 0 <= index < len(parameters)
            or not isinstance(tensors, dict)
        ):
            yield f"optimizer {index}: nothing that this run's optimizer keeps"
            continue
        for name, value in tensors.items():
            if isinstance(value, Tensor) and value.ndim:
                yield from _unlike(
                    f"optimizer {name} of parameter {index}", parameters[index], value
                )
            elif not (
                value is None or (isinstance(value, int | float | Tensor) and math.isfinite(value))
            ):
                yield f"optimizer {name} of parameter {index}: not a finite number"


def _is_best(best: dict[str, Any], total_steps: int) -> bool:
    """Return whether `best` may be what training.best has saved; its tensors are not looked at."""
    kinds = {"by": str, "step": int, "evaluations": int, "metrics": list, "weights": dict}
    return (
        all(type(best.get(key)) is kind for key, kind in kinds.items())
        and 0 < best["step"] <= total_steps
        and len(best["metrics"]) == len(Metrics._fields)
        and all(type(value) in (int, float) for value in best["metrics"])
    )


def _unlike(place: str, wanted: Tensor | None, found: object) -> Iterator[str]:
    if _kind(wanted) != _kind(found):
        yield f"{place}: is {_kind(found)}, but this run needs {_kind(wanted)}"


def _kind(value: object) -> str:
    """Return dtype and shape of a tensor, else the type."""
    if isinstance(value, Tensor):
        return f"{str(value.dtype).removeprefix('torch.')} {list(value.shape)}"
    return "missing" if value is None else type(value).__name__
