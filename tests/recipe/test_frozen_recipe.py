"""The recipe in a run folder: read back equal, also after an edit or from another version."""

import pytest

from resnet_recipes.base.errors import Kind, RecipeError
from resnet_recipes.base.suggestions import suggest_printing_settings
from resnet_recipes.recipe.compose import compose
from resnet_recipes.recipe.frozen_recipe import _format_digest, freeze, read
from tests.shared.checks import get_error, get_problem


@pytest.mark.parametrize("name", ["mild", "medium", "hot", "demo"])
def test_frozen_recipe_reads_back_equal(name, tmp_path):
    recipe = compose(name, ["data=/odd path/it's #1: e", "lr=1e-7", "run=0123"]).recipe
    (tmp_path / "config.yaml").write_text(freeze(recipe), encoding="utf-8")
    assert read(tmp_path / "config.yaml") == recipe


@pytest.mark.parametrize(
    "run", ["0918", "08", "n", "y", "NO", "1e5", "3e12", "0o7", "0x1f", "0_8", "true", "7", "1.5"]
)
def test_name_like_a_number_or_switch_stays_text(run, tmp_path):
    recipe = compose("mild", ["data=/data", f"run={run}"]).recipe
    (tmp_path / "config.yaml").write_text(freeze(recipe))
    assert recipe.run.name == run
    assert read(tmp_path / "config.yaml") == recipe


def test_freeze_omits_methods_that_are_off():
    recipe = compose("hot", ["data=/data"]).recipe
    assert "mixup:\n    alpha: 0.25\n" in freeze(recipe)
    assert "cutmix" not in freeze(recipe)  # it is off


def test_settings_missing_in_older_file_have_defaults(tmp_path):
    recipe = compose("hot", ["data=/data"]).recipe
    path = tmp_path / "config.yaml"
    newer = ("  order: random\n", "  milestones: []\n", "    update_interval: 20ba\n")
    text = freeze(recipe)
    for line in newer:
        assert line in text
        text = text.replace(line, "")
    path.write_text(text)
    assert read(path) == recipe


def add_setting(text: str, setting: str, section: str = "schedule") -> str:
    """Return a frozen recipe with one more setting in a section, and a new seal."""
    text = text.partition("\n")[2].replace(f"\n{section}:\n", f"\n{section}:\n  {setting}\n")
    return f"{_format_digest(text.encode())}\n{text}"


@pytest.mark.parametrize(
    ("section", "setting"),
    [
        *(("schedule", f"old: {off}") for off in ("[]", "false", "null", "''", "{}")),
        ("log", "old: true"),
    ],
)
def test_removed_setting_without_effect_is_skipped(section, setting, tmp_path):
    recipe = compose("mild", ["data=/data"]).recipe
    path = tmp_path / "config.yaml"
    path.write_text(add_setting(freeze(recipe), setting, section))
    assert read(path) == recipe
    path.write_text(path.read_text().replace("seed: 42", "seed: 43"))  # an edit breaks the seal
    error = get_error(RecipeError, read, path)
    assert [problem.key for problem in error.problems] == [f"{section}.old"]


@pytest.mark.parametrize("setting", ["old: [1]", "old: true", "old: 0", "old: x", "old: {a: 1}"])
def test_removed_setting_that_is_on_is_unknown(setting, tmp_path):
    recipe = compose("mild", ["data=/data"]).recipe
    path = tmp_path / "config.yaml"
    path.write_text(add_setting(freeze(recipe), setting))
    problem = get_problem(RecipeError, read, path)
    assert (problem.key, problem.kind, problem.where) == ("schedule.old", Kind.UNKNOWN, str(path))
    assert problem.advice == (suggest_printing_settings(),)


def test_frozen_recipe_is_validated(tmp_path):
    recipe = compose("mild", ["data=/data"]).recipe
    path = tmp_path / "config.yaml"
    path.write_text(freeze(recipe).replace("momentum: 0.875", "momentum: 7"))
    with pytest.raises(RecipeError, match=r"config.yaml: optimizer.momentum=7"):
        read(path)
