"""Collect the state of a run between two steps for checkpoints, and restore it."""

import copy
import math
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import asdict, replace
from itertools import islice

import torch
from torch import Tensor, nn

from resnet_recipes import __version__
from resnet_recipes.base import duration
from resnet_recipes.base.errors import Hint, Problem, RecipeError, Statement, TrainingError, to_text
from resnet_recipes.base.field_types import flatten
from resnet_recipes.network.archive import State
from resnet_recipes.recipe.build import is_plain_recipe
from resnet_recipes.recipe.schema import Recipe
from resnet_recipes.training.run import Run

#: Settings that may differ between a checkpoint and the run that resumes from it: they do not
#: change the weights of a step, but an accuracy in `evaluation` may end the run.
SAFE_SETTINGS = (
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

#: Settings that may also differ, with a warning: they fix the cause of a failure, such as a damaged
#: image or a lack of memory.
REPAIR_SETTINGS = ("data.on_bad_image", "batch.bn_size")

#: Advice if the settings of a checkpoint differ.
_OTHER_RUN = Hint("use the original value, or start a new run")

#: Facts in a checkpoint that affect rounding, in addition to the torch version and the hardware.
ROUNDING_FACTS = {
    "world_size": "number of devices",
    "device": "device",
    "dtype": "precision",
    "threads": "CPU threads",
}


def collect_state(run: Run, done: int) -> State:
    """Return the complete state of the run after `done` steps.

    The tensors are not copied. The random state, the schedule and the position in the data are not
    stored: all are functions of the seed and the step.
    """
    is_cuda = run.rank.device.type == "cuda"
    return {
        "step": done,
        "seconds": run.clock.seconds(),
        "has_pending_evaluation": run.has_pending_evaluation,
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
            "fused operations": ", ".join(run.operations.list_fused()) or "none",
        },
        "teachers": {teacher.key: teacher.digest for teacher in run.plan.teachers},
    }


def restore(run: Run, state: State) -> int:
    """Restore `run`, except its clock, from a checkpoint's state; return the completed steps.

    Raises RecipeError if the data, a teacher, or a setting that affects the weights differs,
    TrainingError if the state does not fit the run.
    """
    try:
        _raise_reasons(find_malformed_fields(run, state))
        RecipeError.raise_if_any(find_resume_problems(run, state))
        _raise_reasons(find_misfits(run, state))
        run.model.load_state_dict(state["model"])
        # A copy, since the optimizer keeps the tensors, and these are memory-mapped. The
        # optimizer's settings come from the recipe.
        groups = run.optimizer.state_dict()["param_groups"]
        run.optimizer.load_state_dict(
            {"state": copy.deepcopy(state["optimizer"]["state"]), "param_groups": groups}
        )
        run.methods.load_state_dict(state["methods"])
        run.precision.load_state_dict(state["precision"])
        run.best.load_state_dict(state["best"])
    except (LookupError, TypeError, AttributeError, ValueError, RuntimeError) as error:
        raise TrainingError(f"the checkpoint cannot be used: {error}") from None
    run.top1 = state["top1"]
    is_pending = state["has_pending_evaluation"]
    run.has_pending_evaluation = is_pending and run.plan.evaluates_at(state["step"])
    return state["step"]


def _raise_reasons(reasons: Iterator[str]) -> None:
    if first := list(islice(reasons, 3)):
        raise ValueError("; ".join(first))


def find_malformed_fields(run: Run, state: State) -> Iterator[str]:
    """Yield the reasons why `state`, which is untrusted, does not have the structure of `run`.

    Without any, its fields can be compared.
    """
    fields = collect_state(run, 0).items()
    if wrong := [
        name for name, value in fields if _name_type(value) != _name_type(state.get(name))
    ]:
        yield f"{', '.join(wrong)}: missing or of the wrong type"
    elif not 0 <= state["step"] <= run.plan.total_steps:
        yield f"step {state['step']} is outside the run's {run.plan.total_steps}"
    elif not 0 <= state["seconds"] < math.inf:
        yield f"seconds: must be finite and not negative, but is {state['seconds']}"
    elif not is_plain_recipe(state["recipe"]):
        yield "recipe: not plain values"


def find_misfits(run: Run, state: State) -> Iterator[str]:
    """Yield a sentence about each tensor that is missing, unknown, or of another shape or dtype."""
    for name, current, saved in _pair_tensors(run, state):
        if _name_type(current) != _name_type(saved):
            yield f"{name}: is {_name_type(saved)}, but this run needs {_name_type(current)}"


def _pair_tensors(run: Run, state: State) -> Iterator[tuple[str, object, object]]:
    """Yield the name of each saved tensor, the tensor of `run` that it must match, and the tensor.

    The optimizer's tensors must match their parameters. The state of methods matches the weight of
    the same name, or itself. A weight that only `run` has is paired with None.
    """
    model = run.model.state_dict()
    best = state["best"].get("weights", model)
    for part, tensors in ("model", state["model"]), ("best", best):
        for key in model | tensors:
            yield f"{part} {key}", model.get(key), tensors.get(key)
    for name, value in state["methods"].items():
        yield f"methods {name}", model.get(name.partition(".")[2], value), value
    parameters = [p for group in run.optimizer.param_groups for p in group["params"]]
    for index, slots in state["optimizer"]["state"].items():
        for name, value in slots.items():
            if isinstance(value, Tensor) and value.ndim:
                yield f"optimizer {name} of parameter {index}", parameters[index], value


def _name_type(value: object) -> str:
    if isinstance(value, Tensor):
        return f"{str(value.dtype).removeprefix('torch.')} {list(value.shape)}"
    value_type = dict if isinstance(value, dict) else type(value)
    return "missing" if value is None else value_type.__name__


def find_resume_problems(run: Run, state: State) -> Iterator[Problem]:
    """Yield reasons why the run cannot resume from `state`: changed settings, data or teachers."""
    yield from find_setting_problems(state["recipe"], run.plan.recipe)
    facts = run.plan.facts
    classes = tuple(state["classes"])
    saved_facts = {"backend": state["backend"], "train_digest": state["train_digest"]}
    if others := facts.describe_differences(replace(facts, **saved_facts, classes=classes)):
        yield Problem("data.root", str(facts.root), f"has changed since the run started: {others}")
    for teacher in run.plan.teachers:
        if state["teachers"].get(teacher.key) != teacher.digest:
            clause = "has changed since the run started"
            yield Problem(teacher.key, teacher.text, clause, Hint("put the original file back"))


def find_setting_problems(saved_recipe: State, recipe: Recipe) -> Iterator[Problem]:
    """Yield a problem for each setting that changed and affects the weights."""
    saved = flatten(saved_recipe)
    current = flatten(asdict(recipe))
    for method in sorted(_list_methods(saved) ^ _list_methods(current)):
        verb = "uses" if method in _list_methods(saved) else "does not use"
        clause = Statement(f"the run {verb} this method")
        yield Problem(method, None, clause, _OTHER_RUN)
        fields = [key for key in saved | current if f"{key}.".startswith(f"{method}.")]
        saved, current = (
            {key: value for key, value in settings.items() if key not in fields}
            for settings in (saved, current)
        )
    changed = [key for key in saved | current if saved.get(key) != current.get(key)]
    if set(duration.SETTINGS) <= set(changed):  # epochs= sets both
        changed.remove(duration.SETTINGS[1])
    for key in sorted(changed):
        if not _is_in(key, (*SAFE_SETTINGS, *REPAIR_SETTINGS)):
            difference = f"differs from the run, which {_describe_value(key, saved)}"
            yield Problem(key, current.get(key), difference, _OTHER_RUN)


def _list_methods(recipe: State) -> set[str]:
    return {
        ".".join(key.split(".")[:2])
        for key, value in recipe.items()
        if key.startswith("methods.") and (value is not None or key.count(".") > 1)
    }


def _describe_value(key: str, recipe: State) -> str:
    if key in duration.SETTINGS:
        with suppress(ValueError):  # of a checkpoint from elsewhere
            base = duration.Duration.parse(recipe["max_duration"])
            ratio = duration.parse_fraction(recipe["scale_schedule_ratio"])
            return f"trains for {base.scale(ratio).to_words()}"
    value = recipe.get(key)
    return "does not set it" if value in (None, "") else f"uses {to_text(value)}"


def list_resume_warnings(run: Run, state: State) -> list[str]:
    """Return reasons why resuming from `state` may not be bit-identical to an uninterrupted run."""
    saved_facts, current_facts = (
        {name: facts[key] for key, name in ROUNDING_FACTS.items()}
        | {"torch": facts["versions"].get("torch")}
        | facts["computed_by"]
        | {key: flatten(facts["recipe"]).get(key) for key in REPAIR_SETTINGS}
        for facts in (state, collect_state(run, 0))
    )
    warnings = [
        f"not bit-identical to an uninterrupted run: {name} {saved_facts.get(name)} -> {fact}"
        for name, fact in current_facts.items()
        if fact != saved_facts.get(name)
    ]
    plan = run.plan
    done = state["step"]
    ranks = state["world_size"]
    is_planned = plan.saves_at(done) or done % plan.steps_per_epoch == 0
    if plan.recipe.batch.bn_average and ranks > 1 and not is_planned:
        warnings.append(
            "not bit-identical to an uninterrupted run: with batch.bn_average, the checkpoint of a "
            "stop within an epoch has only rank 0's BatchNorm statistics"
        )
    return warnings


def _is_in(key: str, prefixes: Sequence[str]) -> bool:
    return any(key == prefix or key.startswith(prefix + ".") for prefix in prefixes)


@torch.no_grad()
def is_finite(model: nn.Module) -> bool:
    """Return whether all weights and running statistics are finite.

    Waits for the device.
    """
    tensors = [t.detach() for t in (*model.parameters(), *model.buffers()) if t.is_floating_point()]
    return bool(torch.stack(torch._foreach_norm(tensors, float("inf"))).isfinite().all())


@torch.no_grad()
def compute_parameter_sum(model: nn.Module) -> Tensor:
    """Return an int64 scalar that changes if any single bit of a parameter does.

    Takes one small kernel per parameter and no host sync.
    """
    sums = [p.detach().view(torch.int32).sum(dtype=torch.int64) for p in model.parameters()]
    # with these factors, swapping parameters changes the sum
    factors = torch.arange(1, len(sums) + 1, device=sums[0].device)
    return (torch.stack(sums) * factors).sum()
