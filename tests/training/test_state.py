"""A run resumes from a state, warns of differences, or rejects changes to the run."""

from collections.abc import Callable
from dataclasses import asdict
from functools import reduce
from operator import getitem
from typing import Any

import pytest
import torch
import yaml

from resnet_recipes.base.errors import RecipeError, TrainingError
from resnet_recipes.base.field_types import flatten
from resnet_recipes.training.checkpoint import Checkpoints
from resnet_recipes.training.run import Run
from resnet_recipes.training.state import (
    collect_state,
    find_setting_problems,
    list_resume_warnings,
    restore,
)
from tests.shared.checks import get_error
from tests.shared.plans import make_recipe
from tests.shared.tables import parse_rows


@pytest.fixture
def state(make_run: Callable[..., Run]) -> dict[str, Any]:
    """The state of a small run after three steps."""
    return collect_state(make_run(), 3)


@pytest.mark.parametrize(("interval", "is_pending"), [("3ba", True), ("2ba", False)])
def test_restored_evaluation_is_due_only_if_planned(interval, is_pending, make_run):
    arguments = f"evaluation.interval={interval}"
    run = make_run(arguments)
    state = collect_state(make_run(arguments), 3)
    restore(run, state | {"has_pending_evaluation": True})
    assert run.has_pending_evaluation == is_pending


def test_restored_run_stays_at_its_target(make_run):
    arguments = "evaluation.stop_at_top1=75.0"
    run = make_run(arguments)
    state = collect_state(make_run(arguments), 3)
    for top1, is_there in ((75.0, True), (74.9, False)):
        restore(run, state | {"top1": top1})
        assert run.has_reached_target == is_there


def test_restore_sets_loss_scale_of_float16(make_run):
    run, resumed = (make_run("precision.dtype=fp16") for _ in range(2))
    run.precision.load_state_dict(run.precision.state_dict() | {"scale": 64.0})
    restore(resumed, collect_state(run, 3))
    assert resumed.precision.scaler.get_scale() == 64.0


def test_restore_accepts_lists_of_a_method(make_run, tmp_path):
    arguments = "methods.progressive_resizing.stairs=[[0ep,0.5],[1ep,1.0]]"
    checkpoints = Checkpoints(tmp_path, 2)
    checkpoints.save(3, collect_state(make_run(arguments), 3), wait=True)
    assert restore(make_run(arguments), checkpoints.load_newest().state) == 3


@pytest.mark.parametrize(
    ("changes", "message"),
    parse_rows(
        """
world_size: 8 | number of devices 8 -> 1
device: cuda | device cuda -> cpu
dtype: torch.float16 | precision torch.float16 -> torch.float32
versions: {torch: 2.0.0} | torch 2.0.0 ->
versions: {} | torch None ->
threads: 99 | CPU threads 99 ->
computed_by: {GPU: NVIDIA A100, fused operations: none} | GPU NVIDIA A100 -> none
computed_by: {GPU: none, fused operations: blur} | fused operations blur -> none
computed_by: {GPU: none} | fused operations None -> none
"""
    ),
)
def test_resume_on_another_machine_warns(changes, message, make_run, state):
    (sentence,) = list_resume_warnings(make_run(), state | yaml.safe_load(changes))
    assert sentence.startswith(f"not bit-identical to an uninterrupted run: {message}")


def test_resume_with_changed_bn_size_warns(make_run, state):
    run = make_run("batch.bn_size=8")
    assert list_resume_warnings(run, state) == [
        "not bit-identical to an uninterrupted run: batch.bn_size 16 -> 8"
    ]
    assert restore(run, state) == 3


def test_resume_within_epoch_warns_about_averaged_statistics(make_run, state):
    assert make_run().plan.steps_per_epoch == 8
    for averages, interval, step, warns in (
        (True, "1ep", 3, True),
        (True, "1ep", 8, False),
        (True, "3ba", 3, False),  # saving copies the statistics of rank 0 to all ranks
        (False, "1ep", 3, False),
    ):
        run = make_run(batch={"bn_average": averages}, checkpoint={"interval": interval})
        message = " ".join(list_resume_warnings(run, state | {"step": step, "world_size": 2}))
        assert ("only rank 0" in message) == warns


@pytest.mark.parametrize(
    "changes", [{"classes": ["cat", "dog"]}, {"train_digest": "00"}, {"backend": "ffcv"}]
)
def test_restore_rejects_other_data(changes, make_run, state):
    error = get_error(RecipeError, restore, make_run(), state | changes)
    assert [problem.key for problem in error.problems] == ["data.root"]


def test_restore_rejects_all_changed_settings_together(make_run, state):
    error = get_error(RecipeError, restore, make_run("seed=4 optimizer.lr=0.1"), state)
    assert [problem.key for problem in error.problems] == ["optimizer.lr", "seed"]


def test_changed_settings_report_removed_setting():
    (problem,) = find_setting_problems(asdict(make_recipe()) | {"rotation": 5}, make_recipe())
    assert str(problem).startswith("rotation differs from the run, which uses 5")


@pytest.mark.parametrize(
    ("old", "new", "message"),
    parse_rows(
        """
max_duration=90ep | max_duration=9ep | which trains for 90 epochs
max_duration=90ep scale_schedule_ratio=0.4 | max_duration=9ep | which trains for 36 epochs
max_duration=500ba | max_duration=1ep | which trains for 500 steps
data.flip=true | data.flip=false | which uses true
methods.ema={} | log.interval=7ba | the run uses this method
log.interval=7ba | methods.sam={} | the run does not use this method
"""
    ),
)
def test_changed_setting_problem_names_old_value(old, new, message):
    (problem,) = find_setting_problems(asdict(make_recipe(old)), make_recipe(new))
    assert problem.clause.endswith(message)


def test_changed_settings_include_method_without_settings():
    off = make_recipe()
    on = make_recipe("methods.trivial_augment={}")
    for old, new in ((off, on), (on, off)):
        (problem,) = find_setting_problems(asdict(old), new)
        assert problem.key == "methods.trivial_augment"


#: Settings in these sections that may change when a run resumes.
FREE = ("data.root", "data.cache", "data.workers", "data.prefetch", "data.on_bad_image")
FREE += ("batch.eval_size", "batch.bn_size")


def test_changed_settings_report_every_learned_setting():
    new = make_recipe("methods.ema={}")
    learned = ("model", "data", "batch", "optimizer", "schedule", "precision", "methods")
    keys = [key for key in flatten(asdict(new)) if key.startswith(learned) and key not in FREE]
    assert len(keys) > 50
    for key in [*keys, "seed", "max_duration", "scale_schedule_ratio"]:
        old = asdict(new)
        *sections, name = key.split(".")
        part = old
        for section in sections:
            part = part[section]
        part[name] = "another"
        assert [problem.key for problem in find_setting_problems(old, new)] == [key]


def take_a_step(run: Run) -> dict[str, Any]:
    """Return the state of a run after one step with zero gradients, with averaged weights."""
    for parameter in run.model.parameters():
        parameter.grad = torch.zeros_like(parameter)
    run.optimizer.step()
    state = collect_state(run, 3)
    state["methods"] = {f"ema.{name}": tensor.clone() for name, tensor in state["model"].items()}
    return state


DEEP = reduce(lambda inside, _: [inside], range(3000), [])

#: Values of the names in the table below; ABSENT removes the key.
VALUES = {
    "DEEP": {"a": DEEP},
    "BOXED": {"momentum_buffer": torch.zeros(2)},
    "ONE": torch.zeros(1),
    "TWO": torch.zeros(2),
    "WHOLE": torch.zeros(64, dtype=torch.int64),
}


@pytest.mark.parametrize(
    ("path", "value", "message"),
    parse_rows(
        """
step | -1 | step -1 is outside
step | 99 | step 99 is outside
step | 3.0 | step: missing or of the wrong type
step | true | step: missing
step | ABSENT | step: missing
seconds | 1 | seconds: missing
seconds | .nan | seconds: must be finite and not negative, but is nan
seconds | .inf | seconds: must be finite and not negative, but is inf
threads | '2' | threads: missing
classes | ab | classes: missing
model | [] | model: missing
computed_by | [] | computed_by: missing
recipe | BOXED | recipe: not plain values
recipe | {1: 2} | recipe: not plain values
recipe | DEEP | recipe: not plain values
best | {by: 'off'} | step
best/weights | {} | best conv1.weight: is missing
model/bn1.weight | ABSENT | model bn1.weight: is missing
model/more | ONE | model more: is float32 [1], but this run needs miss
model/bn1.weight | ONE | model bn1.weight: is float32 [1]
model/bn1.weight | WHOLE | model bn1.weight: is int64
model/bn1.weight | 1.0 | model bn1.weight: is float
methods/ema.fc.bias | TWO | methods ema.fc.bias: is float32 [2]
methods/sam.fc.bias | TWO | methods sam.fc.bias: is float32 [2]
methods/sam.a | TWO | the checkpoint has tensors of sam, which is off
methods/ema.fc.bias | x | methods ema.fc.bias: is str
optimizer/state | ABSENT | state
optimizer/state/1000 | BOXED | out of range
optimizer/state/0 | 5 | attribute
optimizer/state/0/momentum_buffer | TWO | optimizer momentum_buffer of parameter 0: is float32 [2]
"""
    ),
)
def test_restore_rejects_malformed_state_with_reason(path, value, message, make_run):
    run = make_run("methods.ema={}")
    state = take_a_step(run)
    *keys, last = (int(key) if key.isdecimal() else key for key in path.split("/"))
    section = reduce(getitem, keys, state)
    if value == "ABSENT":
        del section[last]
    else:
        section[last] = VALUES.get(value, yaml.safe_load(value))
    error = get_error(TrainingError, restore, run, state)
    assert str(error).startswith("the checkpoint cannot be used: ")
    assert message in str(error)


def test_restore_keeps_optimizer_settings_of_recipe(make_run):
    run = make_run("methods.ema={}")
    state = take_a_step(run)
    for group in state["optimizer"]["param_groups"]:
        group.update(weight_decay=1e9, momentum=-3, params=[])
    assert restore(run, state) == 3
    assert all(
        group["weight_decay"] < 1 and group["momentum"] > 0 and group["params"]
        for group in run.optimizer.param_groups
    )
