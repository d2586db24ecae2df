"""A trained network is opened with its own settings only."""

import shutil

import pytest
from torch import nn

from resnet_recipes.base.errors import Kind, RecipeError
from resnet_recipes.data import survey_images
from resnet_recipes.data.base import DataConfig
from resnet_recipes.inference import open as opening
from resnet_recipes.network.about import NetworkDescription
from resnet_recipes.network.load import Network
from resnet_recipes.recipe.schema import Recipe
from tests.shared.checks import get_problem
from tests.shared.images import create_random_images


@pytest.mark.parametrize("argument", ["data.eval_size=24", "evaluation.sizes=[32,24]"])
def test_unsupported_image_size_is_rejected(argument, tmp_path, monkeypatch):
    model = nn.Sequential(nn.Flatten(), nn.Linear(3 * 32 * 32, 4))
    about = NetworkDescription("torchvision:of_one_size", 4, eval_resize=32, eval_size=32)
    monkeypatch.setattr(opening, "open_network", lambda *_, **__: Network(model, about))
    with pytest.raises(RecipeError, match="torchvision:of_one_size does not accept") as caught:
        opening.open_trained(tmp_path / "weights.pt", [argument], opening.SETTINGS["eval"])
    assert caught.value.problems[0].fix == "data.eval_size=32"
    assert opening.open_trained(tmp_path / "weights.pt").recipe.data.eval_size == 32


@pytest.fixture
def network() -> Network:
    return Network(nn.Flatten(), NetworkDescription("resnet18", 4, eval_resize=32, eval_size=32))


def test_unknown_setting_of_a_network_refers_to_help(network):
    problem = get_problem(RecipeError, opening.open_trained, network, ["wombat=1"])
    assert problem.lines() == [
        "unknown setting wombat=1",
        "hint:  resnet-recipes eval --help   lists the settings of a network",
    ]


def test_open_trained_rejects_a_conflicting_size(network):
    with pytest.raises(RecipeError, match="must be at least"):
        opening.open_trained(network, ["data.eval_size=64"])


def test_setting_of_training_is_rejected_with_a_hint(network):
    problem = get_problem(RecipeError, opening.open_trained, network, ["data.mean=[1,2,3]"])
    assert (problem.key, problem.corrections) == ("data.mean", ())
    assert (problem.kind, problem.valid) == (Kind.UNUSED, ())


@pytest.mark.parametrize(
    ("name", "facts", "val_share"),
    [
        ("photos", "damaged", 0.1),
        ("link", "damaged", 0.1),
        ("copy", "intact", 0.1),
        ("copy", "damaged", 0.0),
        ("others", "intact", 0.0),
        ("none", "intact", 0.0),
    ],
)
def test_only_other_images_reset_val_share(tmp_path, name, facts, val_share):
    photos = create_random_images(tmp_path / "images").joinpath("val").rename(tmp_path / "photos")
    (tmp_path / "link").symlink_to("photos")
    shutil.copytree(photos, tmp_path / "copy")
    (tmp_path / "images/train").rename(tmp_path / "others")
    recipe = Recipe("small", data=DataConfig(root=str(photos), val_share=0.1))
    text = survey_images(recipe.data).to_json() if facts == "intact" else "{"
    (tmp_path / "data.json").write_text(text)
    root = str(tmp_path / name)
    changed = opening.apply_changes(recipe, [f"data={root}"], opening.SETTINGS["eval"], tmp_path)
    assert (changed.data.root, changed.data.val_share) == (root, val_share)
