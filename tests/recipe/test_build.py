"""Sections become a recipe, or problems with the keys of the settings."""

import pytest
import yaml

from resnet_recipes.base.errors import Kind
from resnet_recipes.recipe.build import build_recipe, complete_section
from resnet_recipes.recipe.schema import Recipe
from tests.shared.tables import parse_rows

MINE = {"name": "mine", "data": {"root": "/data"}}


def list_tree_problems(tree: dict) -> list[str]:
    """Return the problems of a tree, without those of the minimal recipe around it."""
    whole = MINE | tree | {"data": MINE["data"] | tree.get("data", {})}
    return [str(problem) for problem in build_recipe(whole)[1]]


def test_build_recipe_turns_a_tree_into_sections():
    tree = (
        "{data: {root: /data, crop_scale: [0.5, 1]}, methods: {label_smoothing: {smoothing: 0.2}}}"
    )
    recipe, problems = build_recipe(MINE | yaml.safe_load(tree))
    assert not problems
    assert isinstance(recipe, Recipe)
    assert recipe.data.crop_scale == (0.5, 1.0)
    assert recipe.methods.label_smoothing.smoothing == 0.2
    assert recipe.methods.bce_loss is None


@pytest.mark.parametrize(
    ("tree", "key", "message"),
    parse_rows(
        r"""
seed: x | seed=x | a whole number
seed: 1.5 | seed=1.5 | a whole number
seed: true | seed=true | a whole number
optimizer: {lr: '1'} | optimizer.lr=1 | a number
optimizer: {lr: true} | optimizer.lr=true | a number
optimizer: {lr: null} | optimizer.lr | a number
optimizer: {lr: [1]} | optimizer.lr=[1] | a number
optimizer: {nesterov: 1} | optimizer.nesterov=1 | true or false
optimizer: {1: 2} | unknown setting optimizer.1 | optimizer.1
optimizer: 5 | optimizer=5 | a mapping of name, lr
max_duration: 90 | max_duration=90 | max_duration=90ep
data: {crop_scale: [1, 2, 3]} | data.crop_scale | a list of 2 values
data: {crop_scale: 1} | data.crop_scale=1 | a list
data: {workers: 1.5} | data.workers=1.5 | a whole number or auto
methods: {bce_loss: true} | methods.bce_loss=true | a mapping of reduction
methods: {label_smoothing: 0.1} | methods.label_smoothing=0.1 | a mapping of smoothing
methods: [] | methods=[] | a mapping
schedule: {milestones: [3ep, 5]} | schedule.milestones | a number and a unit
published: [{top: 1.0}] | published | (not top)
published: [{epochs: 3}] | published | (top1 is missing)
published: {top1: 1.0} | published | a list
optimizer: {lr: .nan} | optimizer.lr=nan | a finite number
optimizer: {lr: -.inf} | optimizer.lr=-inf | a finite number
seed: 1000000000000000000000000000000 | seed=1000 | at most 64 bits
methods: {sam: {interval: 9223372036854775808}} | methods.sam.interval=9 | at most 64 bits
data: {root: "a\0b"} | data.root=a | text without invisible characters
run: {name: "a\u202eb"} | run.name=a | text without invisible characters
"""
    ),
)
def test_build_recipe_reports_wrong_type_by_key(tree, key, message):
    (problem,) = list_tree_problems(yaml.safe_load(f"{{{tree}}}"))
    assert problem.startswith(key)
    assert message in problem


def test_number_beyond_floating_point_is_not_finite():
    (problem,) = list_tree_problems({"optimizer": {"lr": 10**400}})
    assert problem.startswith("optimizer.lr=1000")
    assert "a finite number" in problem


def test_unknown_names_are_reported_without_their_contents():
    text = "{optimiser: {lr: 1, momentum: 2}, optimizer: {lrr: 1}, methods: {emma: {x: 1}}}"
    _, problems = build_recipe(MINE | yaml.safe_load(text))
    assert [(problem.kind, problem.key) for problem in problems] == [
        (Kind.UNKNOWN, "optimiser"),
        (Kind.UNKNOWN, "optimizer.lrr"),
        (Kind.UNKNOWN, "methods.emma"),
    ]


@pytest.mark.parametrize("name", ["adam", 5, ["lamb"], None])
def test_unknown_optimizer_lists_valid_names(name):
    _, problems = build_recipe(MINE | {"optimizer": {"name": name, "lr": 0.9}})
    assert [(problem.key, problem.valid) for problem in problems] == [
        ("optimizer.name", ("decoupled_sgdw", "sgd", "lamb", "lars", "adamw"))
    ]


def test_complete_section_unsets_settings_of_other_optimizers():
    section = complete_section("optimizer", {"name": "lamb", "lr": 0.5})
    assert section["lr"] == 0.5
    assert section["betas"] == [0.9, 0.999]
    assert section["momentum"] is None
    assert build_recipe(MINE | {"optimizer": section})[1] == []
    assert complete_section("schedule", {"name": "linear"})["warmup"] == "8ep"
