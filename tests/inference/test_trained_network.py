"""The settings of a trained network come from its run folder or its file."""

import errno
import os
from unittest.mock import Mock

import pytest

from resnet_recipes.base.errors import NotReadyError, RecipeError
from resnet_recipes.inference import trained_network
from resnet_recipes.inference.open import open_trained
from resnet_recipes.inference.trained_network import make_recipe
from resnet_recipes.network.about import NetworkDescription
from resnet_recipes.network.load import Network
from tests.shared.tiny_networks import build_narrow_resnet18


def test_weights_file_determines_crop_of_images(tmp_path):
    network = Network(
        build_narrow_resnet18(4), NetworkDescription("resnet18", 4, eval_resize=40, eval_size=32)
    )
    data = make_recipe(tmp_path / "weights.pt", network).data
    assert (data.eval_resize, data.eval_size) == (40, 32)


@pytest.mark.timeout(20)  # opening a FIFO would block
def test_unreadable_recipe_of_run_is_rejected(tmp_path):
    network = Network(build_narrow_resnet18(4), NetworkDescription("resnet18", 4))
    with pytest.raises(RecipeError, match="does not exist"):
        make_recipe(tmp_path, network)
    os.mkfifo(tmp_path / "config.yaml")
    with pytest.raises(RecipeError, match="Not a regular file"):
        make_recipe(tmp_path, network)


def test_open_images_reports_only_errors_of_files(tmp_path, monkeypatch):
    network = Network(build_narrow_resnet18(4), NetworkDescription("resnet18", 4))
    trained = open_trained(network, [f"data={tmp_path}"])
    for error, reported in (
        (OSError(errno.EMFILE, "Too many open files"), OSError),
        (OSError(errno.EACCES, "Permission denied", str(tmp_path)), NotReadyError),
    ):
        monkeypatch.setattr(trained_network, "open_labeled", Mock(side_effect=error))
        with pytest.raises(reported):
            trained.open_images()
