"""The state of a run between two steps: what a checkpoint holds, and how a run takes it back."""

import copy
from collections.abc import Iterator
from dataclasses import asdict
from typing import Any

import torch
from torch import Tensor, nn

from resnet_recipes import __version__
from resnet_recipes.config import Recipe
from resnet_recipes.errors import Problem, RecipeError
from resnet_recipes.train.run import Run

#: Keys that may differ between a checkpoint and the run that goes on from it: they do not change what is learned.
SAFE = (
    "launch", "log", "run", "checkpoint", "evaluation", "about", "published",
    "data.root", "data.workers", "data.prefetch", "batch.eval_size",
)

#: Keys that may differ too, and are told: what a run is stopped by, an image that is damaged or a device without memory, they mend.
MENDING = ("data.on_bad_image", "batch.bn_size")


def capture(run: Run, done: int) -> dict[str, Any]:
    """Return everything that defines the run after `done` steps: references to live tensors, and plain values.

    There is no random state, no schedule and no position in the data: all are functions of the seed and the step.
    """
    return {
        "step": done,
        "seconds": run.clock.seconds(),
        "model": run.model.state_dict(),
        "optimizer": run.optimizer.state_dict(),
        "methods": run.methods.state_dict(),
        "precision": run.precision.state_dict(),
        "recipe": asdict(run.plan.recipe),
        "classes": list(run.plan.facts.classes),
        "train_examples": run.plan.facts.train_examples,
        "backend": run.plan.facts.backend,
        "dtype": str(run.precision.dtype),
        "device": run.rank.device.type,
        "world_size": run.rank.world_size,
        "threads": torch.get_num_threads(),
        "versions": {"resnet-recipes": __version__, "torch": str(torch.__version__)},
    }


def restore(run: Run, state: dict[str, Any]) -> int:
    """Put `run` into the state of a checkpoint, in place; return the completed steps. Raises RecipeError if they do not belong together."""
    if problems := list(conflicts(run, state)):
        raise RecipeError(problems)
    run.model.load_state_dict(state["model"])
    run.optimizer.load_state_dict(copy.deepcopy(state["optimizer"]))     # it keeps what it is given, and the state is mapped from a file
    run.methods.load_state_dict(state["methods"])
    run.precision.load_state_dict(state["precision"])
    run.clock.restart(state["seconds"])
    return state["step"]


def conflicts(run: Run, state: dict[str, Any]) -> Iterator[Problem]:
    """Yield what forbids going on from `state`: changed settings, other data."""
    yield from changed_settings(state["recipe"], run.plan.recipe)
    if state["classes"] != list(run.plan.facts.classes):
        yield Problem("data.root", str(run.plan.facts.root), "has other classes than the data of this run")
    if state["backend"] != run.plan.facts.backend:
        yield Problem("data.backend", run.plan.facts.backend, f"reads other pixels than {state['backend']}, which the run began with",
                      f"data.backend={state['backend']}, where it can be had")
    if state["train_examples"] != run.plan.facts.train_examples:
        yield Problem("data.root", str(run.plan.facts.root),
                      f"has {run.plan.facts.train_examples:,} training images; the run began with {state['train_examples']:,}")


def changed_settings(old: dict[str, Any], new: Recipe) -> Iterator[Problem]:
    """Yield a problem for each setting that differs from the checkpoint's and changes what is learned."""
    before, after = flat(old), flat(asdict(new))
    for key in sorted(before.keys() | after.keys()):
        if before.get(key) != after.get(key) and not any(key == safe or key.startswith(safe + ".") for safe in (*SAFE, *MENDING)):
            yield Problem(key, after.get(key), f"was {before.get(key)} when the run began, and changing it would make another run",
                          "start a new run, or leave it as it was")


def departures(run: Run, state: dict[str, Any]) -> list[str]:
    """Return why going on from `state` is not bitwise the uninterrupted run: sentences for the user; empty if it is."""
    now = {"number of devices": run.rank.world_size, "CPU threads": torch.get_num_threads(), "torch": str(torch.__version__),
           "device": run.rank.device.type, "precision": str(run.precision.dtype)}
    then = {"number of devices": state["world_size"], "CPU threads": state["threads"], "torch": state["versions"]["torch"],
            "device": state["device"], "precision": state["dtype"]}
    before, after = flat(state["recipe"]), flat(asdict(run.plan.recipe))
    then |= {key: before[key] for key in MENDING}
    now |= {key: after[key] for key in MENDING}
    return [f"resume is not bitwise: {name} {then[name]} -> {now[name]}" for name in now if now[name] != then[name]]


def flat(tree: dict[str, Any], prefix: str = "") -> dict[str, Any]:
    """Return a nested dictionary with dotted keys; tuples as lists, as YAML and checkpoints have them."""
    leaves: dict[str, Any] = {}
    for key, value in tree.items():
        if isinstance(value, dict):
            leaves |= flat(value, f"{prefix}{key}.")
        else:
            leaves[prefix + key] = list(value) if isinstance(value, tuple) else value
    return leaves


@torch.no_grad()
def is_finite(model: nn.Module) -> bool:
    """Tell whether every weight and running statistic is a finite number; waits for the device."""
    tensors = [t.detach() for t in (*model.parameters(), *model.buffers()) if t.is_floating_point()]
    return bool(torch.stack(torch._foreach_norm(tensors, float("inf"))).isfinite().all())


@torch.no_grad()
def digest(model: nn.Module) -> Tensor:
    """Return an int64 scalar that changes if any bit of a parameter does; no host sync, one small kernel a parameter."""
    sums = [p.detach().view(torch.int32).sum(dtype=torch.int64) for p in model.parameters()]
    weights = torch.arange(1, len(sums) + 1, device=sums[0].device)      # so that two parameters cannot swap unseen
    return (torch.stack(sums) * weights).sum()
