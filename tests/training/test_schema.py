"""A state of the wrong form is refused in a sentence before any of it is used."""

from collections.abc import Callable
from functools import reduce
from operator import getitem
from typing import Any

import pytest
import torch

from resnet_recipes.base.errors import TrainingError
from resnet_recipes.training.run import Run
from resnet_recipes.training.schema import malformed, misfits
from resnet_recipes.training.state import capture, restore

DEEP: list = []
for _ in range(3000):
    DEEP = [DEEP]


#: Instead of a value: what is there is taken out.
ABSENT = object()


def after_a_step(run: Run) -> dict[str, Any]:
    """Return the state of a run that has made a step, as zeros of the right shapes."""
    for parameter in run.model.parameters():
        parameter.grad = torch.zeros_like(parameter)
    run.optimizer.step()
    state = capture(run, 3)
    state["methods"] = {f"ema.{name}": tensor.clone() for name, tensor in state["model"].items()}
    return state


@pytest.fixture
def run(make_run: Callable[..., Run]) -> Run:
    """A small run with an average."""
    return make_run("methods.ema={}")


def test_the_state_of_a_run_fits_it(run):
    state = after_a_step(run)
    assert list(malformed(state, run.plan.total_steps)) == []
    assert list(misfits(run, state)) == []


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("step", -1),
        ("step", 99),
        ("step", 3.0),
        ("step", True),
        ("step", None),
        ("seconds", float("nan")),
        ("seconds", -1.0),
        ("seconds", 1),
        ("world_size", 0),
        ("threads", "2"),
        ("train_examples", -5),
        ("classes", [1, 2]),
        ("classes", "ab"),
        ("versions", {}),
        ("model", []),
        ("versions", {"torch": torch.zeros(2)}),
        ("computed_by", []),
        ("computed_by", {"GPU": 1}),
        ("teachers", {"a": torch.zeros(2)}),
        ("recipe", {"seed": torch.zeros(2)}),
        ("recipe", {1: 2}),
        ("recipe", {"a": DEEP}),
        ("precision", {"scale": float("inf")}),
        ("precision", {"scale": "x"}),
        ("device", None),
    ],
)
def test_a_field_of_the_wrong_type_or_range_is_named(field, value, run):
    (sentence,) = malformed(after_a_step(run) | {field: value}, run.plan.total_steps)
    assert field in sentence
    with pytest.raises(TrainingError, match="the checkpoint cannot be used"):
        restore(run, after_a_step(run) | {field: value})


@pytest.mark.parametrize(
    ("place", "value", "named"),
    [
        (("model", "bn1.weight"), ABSENT, "model bn1.weight: is missing"),
        (
            ("model", "more"),
            torch.zeros(1),
            "model more: is float32 [1], but this run needs missing",
        ),
        (("model", "bn1.weight"), torch.zeros(1), "model bn1.weight: is float32 [1]"),
        (
            ("model", "bn1.weight"),
            torch.zeros(64, dtype=torch.int64),
            "model bn1.weight: is int64 [64]",
        ),
        (("model", "bn1.weight"), 1.0, "model bn1.weight: is float"),
        (("methods", "ema.fc.bias"), torch.zeros(3), "methods ema.fc.bias"),
        (("methods", "sam.fc.bias"), torch.zeros(3), "methods sam.fc.bias"),
        (("methods", "ema.fc.bias"), "x", "methods ema.fc.bias"),
        (("optimizer", "state"), ABSENT, "optimizer None"),
        (("optimizer", "state", 1000), {}, "optimizer 1000"),
        (("optimizer", "state", 0), 5, "optimizer 0"),
        (
            ("optimizer", "state", 0, "momentum_buffer"),
            torch.zeros(2),
            "optimizer momentum_buffer of parameter 0",
        ),
        (("optimizer", "state", 0, "step"), float("inf"), "optimizer step of parameter 0"),
        (("optimizer", "state", 0, "step"), [1], "optimizer step of parameter 0"),
    ],
)
def test_a_tensor_that_does_not_fit_is_named(place, value, named, run):
    state = after_a_step(run)
    *path, last = place
    section = reduce(getitem, path, state)
    section.pop(last) if value is ABSENT else section.update({last: value})
    (sentence,) = misfits(run, state)
    assert sentence.startswith(named)


def test_the_settings_of_the_optimizer_are_the_recipes(run):
    state = after_a_step(run)
    for group in state["optimizer"]["param_groups"]:
        group.update(weight_decay=1e9, momentum=-3, params=[])
    restore(run, state)
    assert all(
        group["weight_decay"] < 1 and group["momentum"] > 0 and group["params"]
        for group in run.optimizer.param_groups
    )
