"""Short setting names in recipe files, and their precedence."""

from pathlib import Path

import pytest

from resnet_recipes.base.errors import RecipeError
from resnet_recipes.base.names import SHORT_NAMES
from resnet_recipes.recipe.compose import compose
from resnet_recipes.recipe.library import expand_document
from resnet_recipes.recipe.strict_yaml import parse
from tests.shared.checks import get_error

PATH = Path("recipes/mine.yaml")


@pytest.mark.parametrize(
    ("text", "tree"),
    [
        ("epochs: 18", {"max_duration": "18ep", "scale_schedule_ratio": 1.0}),
        ("epochs: 22.5", {"max_duration": "22.5ep", "scale_schedule_ratio": 1.0}),
        ("epochs: 500ba", {"max_duration": "500ba", "scale_schedule_ratio": 1.0}),
        ("ssr: 0.5", {"scale_schedule_ratio": 0.5}),
        ("lr: 1\noptimizer: {name: sgd}", {"optimizer": {"name": "sgd", "lr": 1}}),
        ("bs: 64\nwd: 0.1", {"batch": {"global_size": 64}, "optimizer": {"weight_decay": 0.1}}),
        ("data: images", {"data": {"root": "images"}}),
        ("data: {root: images}\nrun: {}", {"data": {"root": "images"}, "run": {}}),
        ("run: mine\ngpus: 2", {"run": {"name": "mine"}, "launch": {"gpus": 2}}),
        ("lr: ${batch.bn_size}", {"optimizer": {"lr": "${batch.bn_size}"}}),
    ],
)
def test_recipe_file_accepts_short_settings(text, tree):
    document = parse(text.encode(), PATH, references=True)
    assert expand_document(document).tree == tree


def test_every_short_name_works_in_a_file(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    values = {"data": "images", "run": "mine", "gpus": 1, "workers": 1, "lr": 0.5, "wd": 0.5}
    settings = {name: values.get(name, 8) for name in SHORT_NAMES} | {"budget": "8m"}
    durations = {"ssr", "epochs", "budget"}
    for duration in durations:
        chosen = {
            name: value for name, value in settings.items() if name not in durations - {duration}
        }
        lines = ["defaults: [mild]", *(f"{name}: {value}" for name, value in chosen.items())]
        (tmp_path / "mine.yaml").write_text("\n".join(lines))
        typed = [f"{name}={value}" for name, value in chosen.items()]
        ours = compose("mine.yaml").recipe
        theirs = compose("mild", typed).recipe
        ours.name, ours.about, ours.published = theirs.name, theirs.about, theirs.published
        assert ours == theirs


def test_command_overrides_short_settings_which_override_parents(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "mine.yaml").write_text("defaults: [hot]\nepochs: 18\nlr: 0.25\n")
    recipe = compose("mine.yaml", ["ssr=0.5"], needs_data=False).recipe
    assert (recipe.max_duration, recipe.scale_schedule_ratio) == ("18ep", 0.5)
    assert recipe.optimizer.lr == 0.25
    assert recipe.optimizer.weight_decay == 3e-4


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("lr: 1\noptimizer:\n  lr: 2\n", "recipes/mine.yaml:1: lr sets optimizer.lr, as line 3"),
        ("max_duration: 9ep\nepochs: 3\n", ":2: epochs sets max_duration, as line 1 does"),
        ("epochs: 3\nssr: 2\n", ":2: ssr sets scale_schedule_ratio, as line 1 does"),
    ],
)
def test_setting_set_twice_is_rejected_with_both_lines(text, message):
    (problem,) = expand_document(parse(text.encode(), PATH)).problems
    assert message in str(problem)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("lr: -1", "mine.yaml:2: optimizer.lr=-1 must be positive"),
        ("lr: [1]", "mine.yaml:2: optimizer.lr=[1] must be a number"),
        ("epochs: -3", "mine.yaml:2: epochs: -3 must be a positive number of epochs"),
        ("epochs: ten", "mine.yaml:2: epochs: ten must be a positive number of epochs"),
        ("bs: 1.5", "mine.yaml:2: batch.global_size=1.5 must be a whole number"),
        ("run: ../../outside", "mine.yaml:2: run.name=../../outside must consist of letters"),
        ("optimizer: 5\nlr: 1", "mine.yaml:2: optimizer=5: optimizer is a section of settings"),
    ],
)
def test_wrong_short_value_is_reported_with_its_line(text, message, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "mine.yaml").write_text(f"defaults: [mild]\n{text}\n")
    error = get_error(RecipeError, compose, "mine.yaml", ["data=/data"])
    assert message in str(error)
