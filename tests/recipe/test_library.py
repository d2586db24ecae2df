"""Recipe files and their names."""

import shlex

import pytest

from resnet_recipes.base.errors import RecipeError
from resnet_recipes.base.names import RECIPE
from resnet_recipes.recipe.library import Library
from tests.shared.checks import get_error


def find_fixes(name: str, folder: Library) -> tuple[str, ...]:
    return get_error(RecipeError, folder.find, name).problems[0].corrections


def test_file_without_a_valid_name_is_not_found(tmp_path):
    (tmp_path / "My-Recipe.yaml").write_text("lr: 1\n")
    assert "My-Recipe" not in Library(tmp_path).list_names()
    find_fixes("My-Recipe", Library(tmp_path))


def test_name_prefix_is_completed_from_four_letters():
    assert find_fixes("fine", Library()) == ("finetune",)
    assert find_fixes("fin", Library()) == ()


def test_equal_copy_of_packaged_recipe_counts_as_packaged(tmp_path):
    packaged = Library().packaged["mild"].read_text()
    (tmp_path / "mild.yaml").write_text(packaged)
    (tmp_path / "hot.yaml").write_text(packaged.replace("name: mild", "name: hot"))
    library = Library(tmp_path)
    assert library.find("mild").location == "packaged"
    assert library.find("mild").shadows is None
    assert library.find("hot").path == tmp_path / "hot.yaml"
    assert library.find("hot").shadows == library.packaged["hot"]


def test_chain_reports_a_misspelled_parent_once(tmp_path):
    (tmp_path / "mine.yaml").write_text("defaults: [milld, optimizer: lamb]\n")
    *_, link = Library(tmp_path).read_chain("mine")
    assert [parent.name for parent in link.parents] == ["mild", "lamb"]
    assert [problem.value for problem in link.document.problems] == ["milld"]


@pytest.mark.parametrize(
    ("file", "name"), [("My recipe.yml", "my_recipe"), ("2.yml", "recipe"), ("A-b.yml", "a_b")]
)
def test_misnamed_file_is_renamed_to_a_recipe_name(file, name, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / file).write_text("seed: 1")
    (command,) = get_error(RecipeError, Library().find, file).problems[0].corrections
    assert shlex.split(command) == ["mv", "-n", file, f"{name}.yaml"]
    assert RECIPE.fullmatch(name)
