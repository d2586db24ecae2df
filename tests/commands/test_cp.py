"""A copied recipe is a child of the original."""

from pathlib import Path

from tests.shared.run_folders import create_run_folder


def test_cp_writes_a_child_that_composes(run_subcommand, recipes):
    assert "\nhint:  resnet-train mine data=PATH " in run_subcommand("cp hot recipes/mine.yaml")
    assert "defaults: [hot]" in (recipes / "mine.yaml").read_text()
    run_subcommand("cp recipes/mine.yaml recipes/other.yaml")
    assert "defaults: [mine]" in (recipes / "other.yaml").read_text()
    assert all(f"{name}.yaml: ok" in run_subcommand("validate") for name in ("mine", "other"))
    assert run_subcommand("diff hot other") == "no setting differs\n"


def test_cp_rejects_parent_outside_recipes(run_command, recipes):
    Path("mine.yaml").write_text("name: mine\ndefaults: [mild]\n")
    message = run_command("resnet-recipes cp mine.yaml recipes/other.yaml", 2).err
    assert "error: `mine.yaml` is a file outside recipes/" in message
    assert "hint:  move it to recipes/mine.yaml" in message
    assert not (recipes / "other.yaml").exists()


def test_cp_to_name_of_parent_is_valid(run_command, run_subcommand):
    message = run_command("resnet-recipes cp hot recipes/hot.yaml").err
    assert message == "note: it hides the packaged recipe hot\n"
    assert run_command("resnet-recipes cp mild recipes/mine.yaml").err == ""
    assert "hot.yaml: ok" in run_subcommand("validate recipes/hot.yaml")


def test_cp_with_swapped_arguments_suggests_the_swap(run_command, recipes):
    for source in ("mine.yaml", "mine"):
        message = run_command(f"resnet-recipes cp {source} hot", 2).err
        assert "\n      try:   resnet-recipes cp hot recipes/mine.yaml\n" in message


def test_cp_rejects_an_existing_file(run_command):
    Path("a.yaml").write_text("mine")
    run_command("resnet-recipes cp hot a.yaml", 2)
    assert Path("a.yaml").read_text() == "mine"


def test_cp_of_run_suggests_only_existing_recipe(run_command):
    for recipe, is_suggested in (("hot", True), ("deleted", False)):
        create_run_folder(Path("runs"), f"of_{recipe}", recipe=recipe)
        message = run_command(f"resnet-recipes cp of_{recipe} recipes/mine.yaml", 2).err
        assert (f"try:   resnet-recipes cp {recipe} recipes/mine.yaml" in message) == is_suggested
