"""Fields of a recipe section keep their types on every assignment."""

import numpy as np
import pytest
import yaml

import resnet_recipes as rr
from resnet_recipes.data.base import DataConfig
from resnet_recipes.methods import EMA, MixUp
from resnet_recipes.methods.optimizers import LAMB
from resnet_recipes.recipe.schema import Recipe
from tests.shared.checks import get_error, get_problem
from tests.shared.tables import parse_rows


@pytest.mark.parametrize(
    ("path", "value", "message"),
    [
        *parse_rows(
            r"""
batchsize | 3 | unknown setting batchsize=3; did you mean batch.global_size?
max_duration | 3 | 100ba or 0.5dur\n    use:   max_duration=3ep
data.train_size | 32.5 | data.train_size=32.5 must be a whole number
data.flip | 1 | data.flip=1 must be true or false
data.crop_scale | [1] | data.crop_scale=[1] must be a list of 2 values
optimizer.lr | high | optimizer.lr=high must be a number
optimizer.lr | '0.5' | optimizer.lr=0.5 must be a number\n    hint:  write 0.5 without q
optimizer.lr | .nan | optimizer.lr=nan must be a finite number
schedule.milestones | [3] | schedule.milestones=[3] must be a number and a unit
methods.mixup | true | methods.mixup=true must be a mapping of alpha or null
methods.mixup.alpha | x | methods.mixup.alpha=x must be a number
methods.mixup.alfa | 1 | alfa=1; did you mean methods.mixup.al
methods.mixup.name | x | unknown setting methods.mixup.name=x\n    hint:  settings: alp
"""
        ),
        ("data", LAMB(), "must be a mapping of backend, root, "),
        ("methods.mixup", EMA(), "must be a mapping of alpha or null"),
    ],
)
def test_section_rejects_wrong_assignment_at_once(path, value, message):
    section = Recipe()
    section.methods.mixup = MixUp()
    *sections, name = path.split(".")
    for part in sections:
        section = getattr(section, part)
    before = getattr(section, name, None)
    value = yaml.safe_load(value) if isinstance(value, str) else value
    problem = get_problem(rr.RecipeError, setattr, section, name, value)
    assert message.replace("\\n", "\n") in str(problem)
    assert getattr(section, name, None) == before


def test_sections_reject_wrong_initial_values():
    assert "data.workers=0.5" in str(get_problem(rr.RecipeError, DataConfig, workers=0.5))
    assert "optimizer.lr=high" in str(get_problem(rr.RecipeError, LAMB, lr="high"))
    assert "methods.ema.half_life=100" in str(get_problem(rr.RecipeError, EMA, half_life=100))


def test_numpy_numbers_become_python_numbers():
    recipe = Recipe(seed=np.int64(3))
    recipe.optimizer.lr = np.float32(0.5)
    recipe.data.crop_scale = [1, 1]
    values = (recipe.seed, recipe.optimizer.lr, *recipe.data.crop_scale)
    assert [type(value) for value in values] == [int, float, float, float]


def test_section_accepts_object_dict_or_none():
    recipe = Recipe(optimizer=LAMB(lr=0.1))
    recipe.methods.ema = EMA()
    recipe.methods.mixup = {"alpha": 0.3}
    recipe.methods.ema = None
    assert (recipe.optimizer.lr, recipe.methods.mixup) == (0.1, MixUp(0.3))


def test_items_of_lists_are_checked_on_use():
    recipe = rr.compose("mild")
    recipe.schedule.milestones.append(3)
    recipe.evaluation.sizes.append("large")
    error = get_error(rr.RecipeError, rr.plan, recipe)
    assert [problem.key for problem in error.problems] == [
        "schedule.milestones",
        "evaluation.sizes",
    ]
