"""The text of a recipe with its parents, and the recipes that are valid."""

from pathlib import Path

import pytest
import yaml

from resnet_recipes.commands.show import fold
from resnet_recipes.recipe.library import find_packaged_folder


def test_show_prints_the_file_with_its_sources(run_subcommand):
    out = run_subcommand("show mild")
    assert (Path(__file__).parents[2] / "recipes/mild.yaml").read_text().strip() in out
    assert "# sha256 " in out


@pytest.mark.parametrize("name", ["hot", "timm_a2", "pytorch_v2", "ffcv_rn50"])
def test_printed_recipe_is_folded_but_equivalent(name):
    text = (find_packaged_folder() / f"{name}.yaml").read_text()
    folded = "\n".join(fold(line, 80) for line in text.splitlines())
    assert max(map(len, folded.splitlines())) <= 80
    assert yaml.safe_load(folded) == yaml.safe_load(text)
    assert sorted(set(text.split()) - set(folded.split())) == []


def test_show_prints_parents_before_a_recipe(run_subcommand, recipes):
    (recipes / "child.yaml").write_text("name: child\ndefaults: [mild, optimizer: lamb]\n")
    output = run_subcommand("show child")
    assert output.index("# mild: ") < output.index("# lamb: ") < output.index("# child: ")


@pytest.mark.parametrize("command", ["show mine", "cp mine recipes/other.yaml"])
def test_show_and_cp_report_unknown_parent(command, run_command, recipes):
    (recipes / "mine.yaml").write_text("defaults: [hott]\n")
    out, err = run_command(f"resnet-recipes {command}", 2)
    assert "mine.yaml:1: unknown recipe hott; did you mean hot?" in err
    assert not out


@pytest.mark.parametrize("command", ["show nope", "job"])
def test_valid_recipes_omit_unreadable_ones(command, run_command, recipes):
    (recipes / "mine.yaml").write_text("defaults: [mild]\nseed: 1\n")
    (recipes / "broken.yaml").write_text("name: [")
    (recipes / "orphan.yaml").write_text("defaults: [gone]\n")
    (recipes / "circle.yaml").write_text("defaults: [circle]\n")
    (recipes / "hot.yaml").write_text("defaults: [hot]\nseed: 1\n")
    valid = run_command(f"resnet-recipes {command}", 2).err.partition("valid: ")[2]
    assert ", mine, " in valid
    assert ", hot, " in valid
    assert "broken" not in valid
    assert "orphan" not in valid
    assert "circle" not in valid
    assert "broken.yaml:2 is not YAML" in run_command("resnet-recipes show broken", 2).err


def test_show_prints_a_recipe_named_like_a_method(run_command, recipes):
    (recipes / "mixup.yaml").write_text("defaults: [mild]\n")
    assert "# mixup: " in run_command("resnet-recipes show mixup").out
    (recipes / "mixup.yaml").write_text("defaults: [mild]\nlr: [\n")
    assert "mixup.yaml:" in run_command("resnet-recipes show mixup", 2).err
