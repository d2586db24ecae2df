"""The settings of a trained network come from its own run folder, or from its file."""

import os

import pytest

from resnet_recipes.base.errors import RecipeError
from resnet_recipes.inference.trained import recipe_of
from resnet_recipes.network.about import About
from resnet_recipes.network.load import Network
from tests.jobs.nursery import narrow_resnet18


def test_a_file_says_how_its_images_are_cropped(tmp_path):
    network = Network(narrow_resnet18(4), About("resnet18", 4, eval_resize=40, eval_size=32))
    data = recipe_of(tmp_path / "weights.pt", network).data
    assert (data.eval_resize, data.eval_size) == (40, 32)


@pytest.mark.timeout(20)  # a FIFO would be waited for
def test_a_run_whose_recipe_cannot_be_read_gets_no_other(tmp_path):
    network = Network(narrow_resnet18(4), About("resnet18", 4))
    with pytest.raises(RecipeError, match="No such file"):
        recipe_of(tmp_path, network)
    os.mkfifo(tmp_path / "config.yaml")
    with pytest.raises(RecipeError, match="Not a regular file"):
        recipe_of(tmp_path, network)
