"""Validation images that look like training images are found."""

import shutil

import numpy as np
import pytest
import torch
from PIL import Image

from resnet_recipes.command_line.run_arguments import open_trained_network
from resnet_recipes.commands.export import USAGE
from resnet_recipes.data.base import DataConfig
from resnet_recipes.inference.similar_images import find_similar


@pytest.fixture
def trained_network(folder_with_weights, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return open_trained_network(["mine"], USAGE).to_device()


def test_find_similar_returns_pairs_with_most_similar_features(trained_network, tmp_path):
    trained_network.recipe.batch.eval_size = 4  # several batches, the last incomplete
    config = DataConfig(root=str(tmp_path / "images"))
    similar = find_similar(trained_network, config)
    features = {}
    for path in sorted((tmp_path / "images").glob("*/*/*.jpg")):
        with torch.no_grad():
            (one,) = trained_network.network.embed(trained_network.network.transform(path)[None])
        features[str(path)] = one.double() / one.double().norm()
    assert len(similar) == 30
    assert [pair.cosine for pair in similar] == sorted(
        (pair.cosine for pair in similar), reverse=True
    )
    for pair in similar:
        cosines = {
            path: float(features[pair.val] @ other)
            for path, other in features.items()
            if "/train/" in path
        }
        assert pair.cosine == pytest.approx(max(cosines.values()), abs=1e-4)
        assert cosines[pair.train] == pytest.approx(pair.cosine, abs=1e-4)


def test_unreadable_images_are_similar_to_nothing(trained_network, tmp_path):
    broken = [tmp_path / "images" / split / "pattern3/broken.jpg" for split in ("train", "val")]
    for path in broken:
        path.write_text("no image")
    similar = find_similar(trained_network, DataConfig(root=str(tmp_path / "images")))
    assert [pair.cosine for pair in similar if pair.val == str(broken[1])] == [0.0]
    assert str(broken[0]) not in {pair.train for pair in similar if pair.cosine > 0}


def test_doctor_lists_similar_pairs_on_request(trained_network, tmp_path, run_command):
    copy = tmp_path / "images/val/pattern3/again.jpg"
    shutil.copy(tmp_path / "images/train/pattern5/0.jpg", copy)
    pixels = np.asarray(Image.open(copy))
    Image.fromarray(pixels).save(copy, quality=97)  # different bytes
    output = run_command("resnet-recipes doctor data images --network mine").out
    assert "validation images that look like a training image" in output
    assert f"{copy}  {tmp_path}/images/train/pattern5/0.jpg" in output
    assert "look like" not in run_command("resnet-recipes doctor data images").out


def test_doctor_takes_settings_of_the_network(trained_network, run_command):
    torch.save(trained_network.model.state_dict(), "weights.pth")
    result = run_command(
        "resnet-recipes doctor data images --network weights.pth model.name=resnet50", 3
    )
    assert "weights.pth cannot be used: it is not resnet50" in result.err
    assert "ok " not in result.out  # no image was decoded before
    resnet = "model.name=resnet18 data.eval_size=24"
    run_command(f"resnet-recipes doctor data images --network weights.pth {resnet}")
    result = run_command(f"resnet-recipes doctor data images {resnet}", 2).err
    assert "takes settings only with --network" in result
