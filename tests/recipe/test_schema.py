"""The limits of every setting of a recipe."""

from dataclasses import fields, is_dataclass

import pytest
import yaml

from resnet_recipes.methods import ORDER
from resnet_recipes.recipe.schema import Recipe, get_enabled
from tests.shared.tables import parse_rows


def list_recipe_problems(**sections) -> dict[str, str]:
    """Return the problems of a recipe with changed sections, by key; data.root is given."""
    recipe = Recipe(name="mine")
    recipe.data.root = "/data"
    for section, values in sections.items():
        if not isinstance(values, dict):
            setattr(recipe, section, values)
            continue
        for key, value in values.items():
            setattr(getattr(recipe, section), key, value)
    return {problem.key: str(problem) for problem in recipe.problems()}


def test_defaults_with_name_and_data_are_a_recipe():
    assert list_recipe_problems() == {}


@pytest.mark.parametrize(
    ("key", "values"),
    parse_rows(
        """
model.name | resnet20, vit, ''
model.num_classes | 1, 0, -1, many
model.init | xavier
model.bn_init | zeros
data.backend | dali
data.root | ''
data.train_size | 0, -176, 7, 2000
data.eval_resize | 200, 4000
data.crop_scale | [0.0, 1.0], [0.5, 0.1], [0.5, 1.5]
data.crop_ratio | [0.0, 1.0], [2.0, 1.0]
data.workers | -1, many, 10000
data.prefetch | 0, 100
data.on_bad_image | ignore
batch.global_size | 0, -1
batch.bn_size | 0
batch.eval_size | 0
optimizer.name | adam
optimizer.lr | 0, -1.0, 100000.0
optimizer.momentum | -0.1, 1.0
optimizer.weight_decay | -0.0001, 1.0
optimizer.clip_norm | 0, -1
schedule.name | step
schedule.warmup | '8', -1ep, 8 epochs
schedule.final | -0.1, 1.1
schedule.power | 0
schedule.interval | batch
precision.dtype | fp8
precision.kernels | 'on'
evaluation.interval | 0ep, '1'
evaluation.stop_at_top1 | 0.0, 0.75, 101.0
evaluation.sizes | [7], [224, 1025], [0]
checkpoint.interval | never
checkpoint.keep | 0, 1
log.interval | 0ba
launch.device | tpu
launch.gpus | 0, -1, 100, all
launch.max_restarts | -1
launch.max_wall | 3 hours, h
run.name | ../x, a/b, '', .hidden
name | '', Mine, a/b, ../x, 1st
max_duration | '90', 0.5dur, 0ep, ninety, 0.5ba
scale_schedule_ratio | 0, -1, 10000.0
seed | -1, 4294967296
"""
    ),
)
def test_recipe_rejects_invalid_value_of_each_setting(key, values):
    section, _, name = key.partition(".")
    for value in yaml.safe_load(f"[{values}]"):
        assert key in list_recipe_problems(**{section: {name: value} if name else value}), value


def test_run_name_is_limited_to_file_name_length():
    assert "run.name" in list_recipe_problems(run={"name": "x" * 200})


def test_schema_rejects_conflicting_settings_of_a_section():
    assert "optimizer.nesterov" in list_recipe_problems(optimizer={"nesterov": True, "momentum": 0})
    assert "schedule.milestones" in list_recipe_problems(schedule={"name": "multistep"})


def test_problems_of_a_method_name_its_full_key():
    mixup = next(method for method in ORDER if method.name == "mixup")
    assert list(list_recipe_problems(methods={"mixup": mixup(alpha=-1)})) == ["methods.mixup.alpha"]


def test_get_enabled_returns_methods_in_running_order():
    recipe = Recipe()
    for method in reversed(ORDER):
        setattr(recipe.methods, method.name, method())
    assert list(get_enabled(recipe.methods)) == [method.name for method in ORDER]


def test_two_recipes_share_no_section():
    one = Recipe()
    two = Recipe()
    sections = [item.name for item in fields(Recipe) if is_dataclass(getattr(one, item.name))]
    assert sections
    assert [name for name in sections if getattr(one, name) is getattr(two, name)] == []
