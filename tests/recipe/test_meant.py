"""What is said to type instead of settings that are refused, in a recipe with its changes."""

import pytest

from resnet_recipes.base.errors import RecipeError
from resnet_recipes.recipe.compose import compose
from tests.tables import rows


def said_about(recipe: str, *words: str) -> str:
    """Return what is said about a recipe that is refused."""
    with pytest.raises(RecipeError) as refused:
        compose(recipe, words, needs_data=False)
    return str(refused.value)


def test_what_is_wrong_in_a_file_is_answered_as_it_is_written_there(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "mine.yaml").write_text(
        "optimizer: lamb\nmethods: {ema: false}\nlaunch: {device: mps, gpus: all}\n",
    )
    said = said_about("mine.yaml")
    assert "optimizer: {name: lamb}" in said
    assert "{} for their defaults; null turns it off" in said
    assert "a Mac's GPU cannot be used" in said
    assert "gpus=auto" in said


@pytest.mark.parametrize(
    ("words", "answer"),
    rows(
        """
optimizer=lamb optimizer.epss=1e-6 | did you mean optimizer.eps=1e-6?
optimizer=lamb optimizer.beta=[0.9,0.9] | did you mean 'optimizer.betas=[0.9,0.9]'?
optimizer=lamb lr=high | mild uses 0.005
seed=3 seed=x | mild uses 42
log=null | its settings: interval, to, mlperf; {} for their defaults
methods=none | {} for their defaults
"""
    ),
)
def test_what_to_type_is_found_in_the_recipe_with_its_options(words, answer):
    said = said_about("mild", *words.split())
    assert f"{answer}\n" in f"{said}\n"


@pytest.mark.parametrize("word", ["methods.ema=[]", "model.args=[1]"])
def test_no_sweep_is_advised_whose_runs_would_be_refused(word):
    assert "-m" not in said_about("mild", word)


def test_a_file_that_only_changes_make_whole_hides_no_problem(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "recipes").mkdir()
    (tmp_path / "recipes/mine.yaml").write_text("seed: ${optimizer.lrate}\n")
    said = said_about("mine", "seed=1", "bs=x")
    assert "batch.global_size=x" in said
