"""`batch.bn_size=auto` becomes a number before a run has a folder, or is refused."""

from contextlib import contextmanager

import pytest

from resnet_recipes import api
from resnet_recipes.base.errors import RecipeError
from resnet_recipes.jobs import fit
from resnet_recipes.jobs.fit import FOUND
from resnet_recipes.recipe.compose import compose
from tests.commands.conftest import TINY

AUTO = [
    *(word for word in TINY.split() if not word.startswith(("batch.bn_size", "launch.device"))),
    "batch.bn_size=auto",
]


@pytest.fixture
def on_gpu(tmp_path, monkeypatch):
    """Return a function that finds a number as on two GPUs of which each fits 4 images."""

    def found():
        asked = {}

        @contextmanager
        def run(task, recipe, facts, group, say):
            asked.update(tried=recipe, job=task.job, ranks=group.ranks)
            (tmp_path / FOUND).write_text("4")
            yield tmp_path

        monkeypatch.setattr(fit.Task, "run", run)
        monkeypatch.setattr(fit.cuda, "found", lambda: fit.cuda.Gpus(2, "H200", "bf16"))
        wanted, told = compose("mild", AUTO), []
        return fit.fitted(api.plan(wanted, 2), told.append), told, asked

    return found


def test_the_number_replaces_auto_in_the_plan_and_is_told(on_gpu):
    plan, told, _ = on_gpu()
    assert (plan.recipe.batch.bn_size, plan.bn_size) == (4, 4)
    assert plan.microbatches == plan.rank_size // 4
    assert told[0] == "batch.bn_size=4 is the most that fits on H200."
    assert "BatchNorm sees 4 images at a time" in told[1]


def test_one_gpu_tries_its_part_of_a_step(on_gpu):
    plan, _, asked = on_gpu()
    tried = asked["tried"]
    assert (asked["ranks"], tried.batch.global_size) == (1, plan.rank_size)
    assert (tried.batch.bn_size, tried.data.backend) == ("auto", "synthetic")


def test_a_run_without_a_gpu_is_refused_before_it_has_a_folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(RecipeError, match=r"batch\.bn_size=auto: is found by trying on a GPU"):
        api.prepare(compose("mild", AUTO).recipe)
    assert list(tmp_path.iterdir()) == []


def test_a_number_is_left_as_it_is():
    plan = api.plan(compose("mild", TINY.split()))
    assert fit.fitted(plan, pytest.fail) is plan


def test_a_plan_says_that_the_number_is_not_yet_known():
    plan = api.plan(compose("mild", AUTO))
    assert plan.bn_size == plan.rank_size
    assert any("found by trying when the run begins" in note for note in plan.notes)
