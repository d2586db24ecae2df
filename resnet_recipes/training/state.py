"""The state of a run between two steps: what a checkpoint holds, and how a run resumes from it."""

import copy
import math
from collections.abc import Iterator, Sequence
from dataclasses import asdict, replace
from itertools import islice

import torch
from torch import Tensor, nn

from resnet_recipes import __version__
from resnet_recipes.base.errors import Hint, Problem, RecipeError, TrainingError
from resnet_recipes.network.archive import State, is_plain
from resnet_recipes.recipe.schema import Recipe
from resnet_recipes.recipe.typed import build, plain
from resnet_recipes.training.run import Run

#: Keys that may differ between a checkpoint and the run that resumes from it: they do not change
#: what is learned.
SAFE = (
    "launch",
    "log",
    "run",
    "checkpoint",
    "evaluation",
    "about",
    "baseline",
    "published",
    "data.root",
    "data.cache",
    "data.workers",
    "data.prefetch",
    "batch.eval_size",
)

#: Keys that may also differ, with a warning: they fix what stopped a run, a damaged image or a lack
#: of memory.
REPAIRS = ("data.on_bad_image", "batch.bn_size")

#: Facts of a checkpoint that decide how numbers are rounded, beside torch and what computes them.
COMPUTES = {
    "world_size": "number of devices",
    "device": "device",
    "dtype": "precision",
    "threads": "CPU threads",
}

#: Levels of nesting in a recipe: sections, methods, their settings, lists, and one to spare.
DEPTH = 5


def capture(run: Run, done: int) -> State:
    """Return everything that defines the run after `done` steps.

    References to live tensors, and plain values.

    There is no random state, no schedule and no position in the data: all are functions of the seed
    and the step.
    """
    is_cuda = run.rank.device.type == "cuda"
    return {
        "step": done,
        "seconds": run.clock.seconds(),
        "owes_evaluation": run.owes_evaluation,
        "top1": run.top1,
        "model": run.model.state_dict(),
        "optimizer": run.optimizer.state_dict(),
        "methods": run.methods.state_dict(),
        "precision": run.precision.state_dict(),
        "best": run.best.state_dict(),
        "recipe": asdict(run.plan.recipe),
        "classes": list(run.plan.facts.classes),
        "train_examples": run.plan.facts.train_examples,
        "train_digest": run.plan.facts.train_digest,
        "backend": run.plan.facts.backend,
        "dtype": str(run.precision.dtype),
        "device": run.rank.device.type,
        "world_size": run.rank.world_size,
        "threads": torch.get_num_threads(),
        "versions": {"resnet-recipes": __version__, "torch": str(torch.__version__)},
        "computed_by": {
            "GPU": torch.cuda.get_device_name(run.rank.device) if is_cuda else "none",
            "fused operations": ", ".join(run.operations.fused()) or "none",
        },
        "teachers": {teacher.key: teacher.digest for teacher in run.plan.teachers},
    }


def restore(run: Run, state: State) -> int:
    """Restore `run` from a checkpoint's state, in place; return the number of completed steps.

    Raises RecipeError if the run's settings or data differ, and TrainingError if the state does not
    fit the run.
    """
    # what older checkpoints do not have
    state = State(best={}, owes_evaluation=False) | state
    try:
        _refuse(malformed(run, state))
        RecipeError.refuse(conflicts(run, state))
        _refuse(misfits(run, state))
        run.model.load_state_dict(state["model"])
        # Copied, since the optimizer would keep these tensors, which are mapped from a file. Its
        # settings are the recipe's.
        groups = run.optimizer.state_dict()["param_groups"]
        run.optimizer.load_state_dict(
            {"state": copy.deepcopy(state["optimizer"]["state"]), "param_groups": groups}
        )
        run.methods.load_state_dict(state["methods"])
        run.precision.load_state_dict(state["precision"])
        run.best.load_state_dict(state["best"])
    except (LookupError, TypeError, AttributeError, ValueError, RuntimeError) as error:
        raise TrainingError(f"the checkpoint cannot be used: {error}") from None
    run.clock.restart(state["seconds"])
    run.top1 = state["top1"]
    run.owes_evaluation = state["owes_evaluation"] and run.plan.evaluates_at(state["step"])
    return state["step"]


def _refuse(wrong: Iterator[str]) -> None:
    if said := list(islice(wrong, 3)):
        raise ValueError("; ".join(said))


def malformed(run: Run, state: State) -> Iterator[str]:
    """Yield what in `state`, which anyone may have written, has not the form that `run` gives it.

    If nothing has, its fields can be compared.
    """
    fields = [(name, value, state.get(name)) for name, value in capture(run, 0).items()]
    if wrong := [name for name, own, found in fields if _kind(own) != _kind(found)]:
        yield f"{', '.join(wrong)}: missing or of the wrong type"
    elif not 0 <= state["step"] <= run.plan.total_steps:
        yield f"step {state['step']} is outside the run's {run.plan.total_steps}"
    elif not 0 <= state["seconds"] < math.inf:
        yield f"seconds: must be finite and not negative, but is {state['seconds']}"
    elif not is_plain(state["recipe"], DEPTH):
        yield "recipe: not plain values"


def misfits(run: Run, state: State) -> Iterator[str]:
    """Yield each tensor in `state` that is not of the shape and dtype that `run` needs."""
    for place, own, found in _tensors(run, state):
        if _kind(own) != _kind(found):
            yield f"{place}: is {_kind(found)}, but this run needs {_kind(own)}"


def _tensors(run: Run, state: State) -> Iterator[tuple[str, object, object]]:
    """Yield the place of each tensor in a state, what `run` has there, and what is there."""
    model = run.model.state_dict()
    for place, found in ("model", state["model"]), ("best", state["best"].get("weights", model)):
        yield from ((f"{place} {key}", model.get(key), found.get(key)) for key in model | found)
    for name, value in state["methods"].items():
        yield f"methods {name}", model.get(name.partition(".")[2], value), value
    parameters = [one for group in run.optimizer.param_groups for one in group["params"]]
    for index, kept in state["optimizer"]["state"].items():
        for name, value in kept.items():
            if isinstance(value, Tensor) and value.ndim:
                yield f"optimizer {name} of parameter {index}", parameters[index], value


def _kind(value: object) -> str:
    """Return dtype and shape of a tensor, else the type."""
    if isinstance(value, Tensor):
        return f"{str(value.dtype).removeprefix('torch.')} {list(value.shape)}"
    kind = dict if isinstance(value, dict) else type(value)
    return "missing" if value is None else kind.__name__


def conflicts(run: Run, state: State) -> Iterator[Problem]:
    """Yield what forbids resuming from `state`: changed settings or data."""
    yield from changed_settings(state["recipe"], run.plan.recipe)
    facts, classes = run.plan.facts, tuple(state["classes"])
    began = {"backend": state["backend"], "train_digest": state["train_digest"]}
    if others := facts.differing(replace(facts, **began, classes=classes)):
        yield Problem("data.root", str(facts.root), f"has other {others} than the run began with")
    for teacher in run.plan.teachers:
        if state["teachers"].get(teacher.key) != teacher.digest:
            rule = "is not what the run began with"
            yield Problem(teacher.key, teacher.text, rule, Hint("put the original file back"))


def changed_settings(old: State, new: Recipe) -> Iterator[Problem]:
    """Yield a problem for each setting that differs from the checkpoint's and changes learning."""
    before, after = settings_in(old), flat(asdict(new))
    for key in sorted(before.keys() | after.keys()):
        if before.get(key) != after.get(key) and not _is_any_of(key, (*SAFE, *REPAIRS)):
            was = "not set" if before.get(key) is None else before[key]
            rule = f"was {was} when the run began; changing it would make this a different run"
            yield Problem(key, after.get(key), rule, Hint("leave it as it was, or start a new run"))


def settings_in(recipe: State) -> State:
    """Return the settings of a checkpoint's recipe, with dotted keys.

    Those that are newer have their defaults.
    """
    return flat(asdict(build(Recipe, recipe, "", []))) | flat(recipe)


def resume_warnings(run: Run, state: State) -> list[str]:
    """Return why resuming from `state` may not be bit-identical to an uninterrupted run.

    Empty if it is.
    """
    before, after = settings_in(state["recipe"]), flat(asdict(run.plan.recipe))
    then, now = (
        {name: found[key] for key, name in COMPUTES.items()}
        | {"torch": found["versions"].get("torch")}
        | found["computed_by"]
        | {key: settings[key] for key in REPAIRS}
        for found, settings in ((state, before), (capture(run, 0), after))
    )
    warnings = [
        f"not bit-identical to an uninterrupted run: {name} {then.get(name)} -> {now[name]}"
        for name in now
        if now[name] != then.get(name)
    ]
    plan, done, ranks = run.plan, state["step"], state["world_size"]
    is_planned = plan.saves_at(done) or done % plan.steps_per_epoch == 0
    if plan.recipe.batch.bn_average and ranks > 1 and not is_planned:
        warnings.append(
            "not bit-identical to an uninterrupted run: batch.bn_average averages the BatchNorm "
            "statistics of all ranks, and the checkpoint of a stop within an epoch has rank 0's"
        )
    newer = [
        f"{key}={after[key]}"
        for key in sorted(before.keys() - flat(state["recipe"]).keys())
        if after.get(key) is not None and not _is_any_of(key, SAFE)
    ]
    if newer:
        warnings.append(
            "settings that did not exist when the run began have their defaults: "
            f"{', '.join(newer)}"
        )
    return warnings


def _is_any_of(key: str, places: Sequence[str]) -> bool:
    """Return whether a setting is one of these, or in one of these sections."""
    return any(key == place or key.startswith(place + ".") for place in places)


def flat(tree: State, prefix: str = "") -> State:
    """Return a nested dictionary with dotted keys.

    Tuples as lists, as YAML and checkpoints have them.

    A method without settings stays an empty dictionary, so that it differs from one that is off.
    """
    leaves: State = {}
    for key, value in tree.items():
        if isinstance(value, dict) and (value or not prefix):  # a section may be empty: methods: {}
            leaves |= flat(value, f"{prefix}{key}.")
        else:
            leaves[prefix + key] = plain(value)
    return leaves


@torch.no_grad()
def is_finite(model: nn.Module) -> bool:
    """Return whether every weight and running statistic is a finite number.

    Waits for the device.
    """
    tensors = [t.detach() for t in (*model.parameters(), *model.buffers()) if t.is_floating_point()]
    return bool(torch.stack(torch._foreach_norm(tensors, float("inf"))).isfinite().all())


@torch.no_grad()
def digest(model: nn.Module) -> Tensor:
    """Return an int64 scalar that changes with any bit of a parameter.

    No host sync, one small kernel per parameter.
    """
    sums = [p.detach().view(torch.int32).sum(dtype=torch.int64) for p in model.parameters()]
    # so that swapped parameters show
    weights = torch.arange(1, len(sums) + 1, device=sums[0].device)
    return (torch.stack(sums) * weights).sum()
