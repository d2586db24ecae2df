"""A run that continues another run's stable phase is bit-identical to one trained alone."""

import os
import shutil
import signal
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from resnet_recipes import api, data
from resnet_recipes.base.errors import NotReadyError, RecipeError, RetryLaterError
from resnet_recipes.jobs.extension import find_stable_state
from resnet_recipes.jobs.ranks import heartbeat
from resnet_recipes.planning.planner import make_plan
from resnet_recipes.recipe.frozen_recipe import freeze, read
from resnet_recipes.recipe.schema import Recipe
from resnet_recipes.run_folder.lock import LockedFolder
from resnet_recipes.run_folder.metrics import read_metrics
from resnet_recipes.run_folder.runs import read_run
from tests.jobs.small_runs import assert_same_weights
from tests.shared.checks import get_error
from tests.shared.plans import make_recipe

#: The stable phase of 16 steps ends at step 12, the stable phase of 24 at step 18; an epoch has 4.
ARGUMENTS = (
    "schedule.name=wsd schedule.cooldown=0.25dur batch.global_size=32 batch.bn_size=32 "
    "checkpoint.interval=8ba checkpoint.keep=9 "
    "methods.ema.half_life=3ba methods.ema.update_interval=1ba checkpoint.best=loss "
    "methods.progressive_resizing.stairs=[[0ep,0.5],[1ep,0.75],[0.75dur,1.0]]"
)


@pytest.fixture
def prepare_run(tmp_path: Path) -> Callable[..., Path]:
    """Return a function that creates the folder of a run with some steps."""

    def make(name: str, steps: int, ranks: int = 1, extends: str = "") -> Path:
        bn = f"batch.bn_size={32 // ranks}"
        run = f"run.root={tmp_path} run.name={name} run.extends='{extends}'"
        small = make_recipe(f"{ARGUMENTS} {bn} max_duration={steps}ba {run}")
        return api.prepare(small, api.plan(small, ranks))

    return make


def read_measurements(folder: Path) -> list[tuple]:
    """Return the recorded steps and evaluations of a run, without clocks."""
    keys = ("kind", "step", "loss", "lr", "pixels", "ema_loss", "is_best")
    return [
        tuple(map(record.get, keys))
        for record in read_metrics(folder / "metrics.jsonl")
        if record["kind"] in ("step", "evaluation")
    ]


@pytest.mark.slow
def test_extended_run_is_bit_identical_even_if_killed(prepare_run, launcher):
    launcher.train(prepare_run("short", 16, 2), 2)
    longer = prepare_run("longer", 24, 2, extends="short")
    alone = launcher.train(prepare_run("alone", 24, 2), 2)
    command = launcher.start(longer, 2)
    while not any(beat.step >= 14 for beat in heartbeat.read_beats(longer)):
        time.sleep(0.002)
    for beat in heartbeat.read_beats(longer):
        os.kill(beat.pid, signal.SIGKILL)
    assert command.wait()[0] == 1
    shutil.rmtree(longer.parent / "short")
    launcher.train(longer, 2)
    assert {record[4] for record in read_measurements(alone) if record[0] == "step"} == {16, 24, 32}
    assert_same_weights(longer, alone, 24)
    assert read_measurements(longer) == read_measurements(alone)
    assert read_run(longer).extends.endswith("short at step 12")
    assert read_run(longer).pflops == read_run(alone).pflops


@pytest.mark.slow
def test_stable_state_is_newest_checkpoint_of_stable_phase(prepare_run, launcher):
    short = launcher.train(prepare_run("short", 16))
    (short / "exit.json").unlink()  # like a run that has not ended
    recipe = read(short / "config.yaml")

    def find(steps: int, recipe: Recipe = recipe):
        run = replace(recipe.run, extends="short", name="auto")
        longer = replace(recipe, run=run, max_duration=f"{steps}ba")
        return find_stable_state(make_plan(longer, data.survey_images(longer.data), 1))

    assert [find(steps).step for steps in (12, 14, 16, 99)] == [8, 8, 12, 12]
    with pytest.raises(
        RetryLaterError, match="has not finished its stable phase, which ends at step 12"
    ):
        find(8)
    config = (short / "config.yaml").read_bytes()
    other = replace(recipe, optimizer=replace(recipe.optimizer, lr=0.07))
    (short / "config.yaml").write_text(freeze(other))  # edited after the training
    with pytest.raises(NotReadyError, match=r"yaml: optimizer\.lr=0\.07 .* which uses 0\.05"):
        find(24, other)
    (short / "config.yaml").write_bytes(config)
    (short / "exit.json").write_text("{}")
    with pytest.raises(NotReadyError, match=r"has no checkpoint up to step 6, (.|\n)*=4$"):
        find(8)
    for path in (short / "checkpoints").glob("step-00000012.*"):
        path.unlink()
    assert find(99).step == 8  # the run was stopped there
    with (
        LockedFolder(short),
        pytest.raises(RetryLaterError, match="has not finished its stable phase"),
    ):
        find(99)
    shutil.rmtree(short)
    with pytest.raises(RetryLaterError, match="there is no run"):
        find(99)


def test_extended_run_rejects_other_training_images(prepare_run, tmp_path):
    prepare_run("short", 16)
    longer = make_recipe(f"{ARGUMENTS} max_duration=24ba run.root={tmp_path} run.extends=short")
    plan = make_plan(longer, data.survey_images(longer.data), 1)
    others = [replace(plan.facts, **{f"{split}_digest": "x"}) for split in ("eval", "train")]
    with pytest.raises(RetryLaterError):  # it must be trained first
        find_stable_state(replace(plan, facts=others[0]))
    with pytest.raises(RecipeError, match=r"differs from .* in training images"):
        find_stable_state(replace(plan, facts=others[1]))


def test_extended_run_rejects_other_schedule_or_settings(prepare_run, tmp_path):
    prepare_run("short", 16)
    cosine = make_recipe(f"run.root={tmp_path} run.name=cosine")
    api.prepare(cosine)
    for arguments, message in (
        (
            "run.extends=cosine",
            "its schedule is cosine, not wsd\n    try:   resnet-train --resume ",
        ),
        (
            "run.extends=short optimizer.lr=0.07",
            "optimizer.lr=0.07 differs from the run, which uses 0.05",
        ),
        ("run.extends=short launch.budget=2h", "budget=2h cannot be used with --extend"),
        ("run.extends=short methods.ema.half_life=0.5dur", "=0.5dur takes 12 of this run's steps"),
    ):
        wrong = make_recipe(f"{ARGUMENTS} max_duration=24ba run.root={tmp_path} {arguments}")
        error = get_error(RecipeError, api.plan, wrong)
        assert message in str(error)
        assert len(error.problems) == 1
