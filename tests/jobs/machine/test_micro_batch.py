"""`batch.bn_size=auto` becomes a number before a run has a folder, or is rejected."""

from contextlib import contextmanager

import pytest

from resnet_recipes import api
from resnet_recipes.base.errors import RecipeError
from resnet_recipes.jobs.machine import micro_batch
from resnet_recipes.jobs.machine.micro_batch import RESULT
from resnet_recipes.recipe.compose import compose
from tests.shared.plans import TINY

AUTO = [
    *(
        argument
        for argument in TINY.split()
        if not argument.startswith(("batch.bn_size", "launch.device"))
    ),
    "batch.bn_size=auto",
]


@pytest.fixture
def fit_on_gpu(tmp_path, monkeypatch):
    """Return a function that finds the number on two simulated GPUs that fit 4 images each."""

    def fit_four_images():
        asked = {}

        @contextmanager
        def run(task, recipe, facts, group, say):
            asked.update(tried=recipe, ranks=group.ranks)
            (tmp_path / RESULT).write_text("4")
            yield tmp_path

        monkeypatch.setattr(micro_batch.Task, "run", run)
        monkeypatch.setattr(
            micro_batch.cuda, "find_gpus", lambda: micro_batch.cuda.VisibleGpus(2, "H200", "bf16")
        )
        recipe = compose("mild", AUTO)
        messages = []
        return micro_batch.fit_micro_batch(api.plan(recipe, 2), messages.append), messages, asked

    return fit_four_images


def test_fitted_batch_replaces_auto_and_is_printed(fit_on_gpu):
    plan, messages, _ = fit_on_gpu()
    assert (plan.recipe.batch.bn_size, plan.micro_batch_size) == (4, 4)
    assert plan.micro_batches == plan.rank_size // 4
    assert messages[0] == "batch.bn_size=4 is the most that fits on H200."
    assert "BatchNorm sees 4 images at a time" in messages[1]


def test_fit_micro_batch_tries_batch_of_one_gpu(fit_on_gpu):
    plan, _, asked = fit_on_gpu()
    tried = asked["tried"]
    assert (asked["ranks"], tried.batch.global_size) == (1, plan.rank_size)
    assert (tried.batch.bn_size, tried.data.backend) == ("auto", "synthetic")


def test_auto_bn_size_without_gpu_creates_no_folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(RecipeError, match=r"batch\.bn_size=auto needs a GPU"):
        api.prepare(compose("mild", AUTO).recipe)
    assert list(tmp_path.iterdir()) == []


def test_fit_micro_batch_keeps_an_explicit_size():
    plan = api.plan(compose("mild", TINY.split()))
    assert micro_batch.fit_micro_batch(plan, pytest.fail) is plan


def test_plan_notes_that_bn_size_is_measured_later():
    plan = api.plan(compose("mild", AUTO))
    assert plan.micro_batch_size == plan.rank_size
    assert any("finds the largest size" in note.text for note in plan.notes)
