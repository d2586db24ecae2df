"""A run resumes from a state, warns of differences, or refuses what would change the run."""

from collections.abc import Callable
from dataclasses import asdict
from typing import Any

import pytest
import torch

from resnet_recipes.base.errors import RecipeError
from resnet_recipes.training.checkpoint import Checkpoints
from resnet_recipes.training.run import Run
from resnet_recipes.training.state import (
    capture,
    changed_settings,
    flat,
    is_finite,
    restore,
    resume_warnings,
)


@pytest.fixture
def state(make_run: Callable[..., Run]) -> dict[str, Any]:
    """The state of a small run after three steps."""
    return capture(make_run(), 3)


def by(**changes: str) -> dict[str, dict[str, str]]:
    """Return the field of a checkpoint that says what computed its numbers."""
    return {"computed_by": {"GPU": "none", "fused operations": "none"} | changes}


def test_the_same_run_resumes_without_a_warning(make_run, state):
    run = make_run()
    assert resume_warnings(run, state) == []
    assert restore(run, state | {"seconds": 60.0}) == 3
    assert run.clock.seconds() >= 60


@pytest.mark.parametrize(("interval", "owes"), [("3ba", True), ("2ba", False)])
def test_only_a_run_that_is_evaluated_after_these_steps_owes_that(interval, owes, make_run):
    words = f"evaluation.interval={interval}"
    run, state = make_run(words), capture(make_run(words), 3)
    restore(run, state | {"owes_evaluation": True})
    assert run.owes_evaluation == owes


def test_lists_of_a_method_are_the_same_in_a_checkpoint(make_run, tmp_path):
    words = "methods.progressive_resizing.stairs=[[0ep,0.5],[1ep,1.0]]"
    checkpoints = Checkpoints(tmp_path, 2, print)
    checkpoints.save(3, capture(make_run(words), 3), wait=True)
    assert restore(make_run(words), checkpoints.newest()[1]) == 3


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"world_size": 8}, "number of devices 8 -> 1"),
        ({"device": "cuda"}, "device cuda -> cpu"),
        ({"dtype": "torch.float16"}, "precision torch.float16 -> torch.float32"),
        ({"versions": {"torch": "2.0.0"}}, "torch 2.0.0 -> "),
        ({"threads": 99}, "CPU threads 99 -> "),
        (by(GPU="NVIDIA A100"), "GPU NVIDIA A100 -> none"),
        (
            by(**{"fused operations": "blur"}),
            "fused operations blur -> none",
        ),
        ({"computed_by": {"GPU": "none"}}, "fused operations None -> none"),
    ],
)
def test_another_machine_is_a_warning(changes, said, make_run, state):
    (sentence,) = resume_warnings(make_run(), state | changes)
    assert sentence.startswith(f"not bit-identical to an uninterrupted run: {said}")


def test_a_changed_bn_size_is_a_warning(make_run, state):
    run = make_run("batch.bn_size=8")
    assert resume_warnings(run, state) == [
        "not bit-identical to an uninterrupted run: batch.bn_size 16 -> 8"
    ]
    assert restore(run, state) == 3


def test_a_stop_within_an_epoch_loses_statistics_that_are_averaged(make_run, state):
    assert make_run().plan.steps_per_epoch == 8
    for averages, interval, step, warns in (
        (True, "1ep", 3, True),
        (True, "1ep", 8, False),
        (True, "3ba", 3, False),  # saving gives all ranks the statistics of rank 0
        (False, "1ep", 3, False),
    ):
        run = make_run(batch={"bn_average": averages}, checkpoint={"interval": interval})
        said = " ".join(resume_warnings(run, state | {"step": step, "world_size": 2}))
        assert ("batch.bn_average averages" in said) == warns


@pytest.mark.parametrize(
    ("changes", "key"),
    [
        ({"classes": ["cat", "dog"]}, "data.root"),
        ({"train_examples": 7}, "data.root"),
        ({"train_digest": "00"}, "data.root"),
        ({"backend": "ffcv"}, "data.backend"),
    ],
)
def test_other_data_are_refused(changes, key, make_run, state):
    with pytest.raises(RecipeError) as caught:
        restore(make_run(), state | changes)
    assert [problem.key for problem in caught.value.problems] == [key]


def test_all_changed_settings_are_refused_together(make_run, state):
    with pytest.raises(RecipeError) as caught:
        restore(make_run("seed=4 optimizer.lr=0.1"), state)
    assert [problem.key for problem in caught.value.problems] == ["optimizer.lr", "seed"]


def test_a_run_that_began_before_a_setting_existed_resumes_with_its_default(make_run):
    run = make_run("methods.ema={}")
    state = capture(run, 3)
    for section, key in (
        ("data", "order"),
        ("evaluation", "flip"),
        ("methods", "mixup"),
        ("optimizer", "momentum"),
    ):
        del state["recipe"][section][key]
    del state["recipe"]["methods"]["ema"]["half_life"]
    assert resume_warnings(run, state) == [
        "settings that did not exist when the run began have their defaults: "
        "data.order=random, methods.ema.half_life=100ba, optimizer.momentum=0.875"
    ]
    assert restore(run, state) == 3


@pytest.mark.parametrize(
    ("section", "key", "changes", "refused"),
    [
        ("data", "order", {"data": {"order": "quasi_random"}}, "data.order"),
        ("optimizer", "momentum", {"optimizer": {"momentum": 0.5}}, "optimizer.momentum"),
        ("methods", "mixup", {"methods": {"mixup": {}}}, "methods.mixup.alpha"),
        (
            "methods",
            "trivial_augment",
            {"methods": {"trivial_augment": {}}},
            "methods.trivial_augment",
        ),
    ],
)
def test_a_setting_that_is_newer_than_the_run_may_have_no_other_value(
    section, key, changes, refused, recipe
):
    old = asdict(recipe())
    del old[section][key]
    (problem,) = changed_settings(old, recipe(**changes))
    assert problem.key == refused


def test_a_setting_that_does_not_exist_is_refused(recipe):
    (problem,) = changed_settings(asdict(recipe()) | {"rotation": 5}, recipe())
    assert str(problem).startswith("rotation: was 5 when the run began")


def test_a_method_without_settings_is_a_change_too(recipe):
    off, on = recipe(), recipe("methods.trivial_augment={}")
    assert [problem.key for problem in changed_settings(asdict(off), on)] == [
        "methods.trivial_augment"
    ]
    assert [problem.key for problem in changed_settings(asdict(on), off)] == [
        "methods.trivial_augment"
    ]


def test_a_single_nan_is_found(make_run):
    model = make_run().model
    assert is_finite(model)
    with torch.no_grad():
        model.bn1.running_mean[0] = float("nan")
    assert not is_finite(model)


#: Settings of these sections that may differ when a run resumes.
FREE = ("data.root", "data.cache", "data.workers", "data.prefetch", "data.on_bad_image")
FREE += ("batch.eval_size", "batch.bn_size")


def test_no_other_setting_of_what_is_learned_may_change(recipe):
    new = recipe("methods.ema={}")
    learned = ("model", "data", "batch", "optimizer", "schedule", "precision", "methods")
    keys = [key for key in flat(asdict(new)) if key.startswith(learned) and key not in FREE]
    assert len(keys) > 50
    for key in [*keys, "seed", "max_duration", "scale_schedule_ratio"]:
        old = asdict(new)
        *sections, name = key.split(".")
        part = old
        for section in sections:
            part = part[section]
        part[name] = "another"
        assert [problem.key for problem in changed_settings(old, new)] == [key]
