"""A run whose images are on a web server learns what it would learn from a folder."""

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from resnet_recipes import data
from resnet_recipes.data.base import DataConfig
from resnet_recipes.data.convert import convert
from resnet_recipes.data.convert.encode import ConvertOptions
from resnet_recipes.recipe.frozen import read
from resnet_recipes.recipe.schema import Recipe
from tests.data.remote.places import site_of
from tests.run_folders import begun
from tests.trained_runs import random_images

pytestmark = pytest.mark.slow


def test_ranks_fetch_once_and_train_as_from_a_folder(
    recipe: Callable[..., Recipe], tmp_path, nursery
):
    betons = tmp_path / "betons"
    betons.mkdir()
    convert(random_images(tmp_path / "img"), betons, ConvertOptions(workers=1), lambda *_: None)

    facts = data.measure(DataConfig("auto", str(betons)))

    def trained(name: str, root: str, code: int = 0) -> Path:
        images = {"backend": "auto", "root": root, "cache": str(tmp_path / "cache"), "workers": 0}
        sizes = {"train_size": 32, "eval_resize": 32, "eval_size": 32}
        made = recipe(
            "max_duration=2ba schedule.warmup=0ba batch.global_size=4 batch.bn_size=2",
            data=images | sizes,
        )
        folder = begun(tmp_path / name, made, facts)
        nursery.start(folder, 2)
        assert nursery.wait() == [code, code]
        return folder

    with site_of(betons) as site:
        local, far = trained("local", str(betons)), trained("far", site.address)
        ranges = [word for word in site.asked if word.startswith("GET")]
        assert len(ranges) == len({*ranges})
        assert read(far / "config.yaml").data.root == site.address
        weights, others = (load_file(run / "weights.safetensors") for run in (local, far))
        assert all(torch.equal(weights[name], others[name]) for name in weights)
        shutil.rmtree(tmp_path / "cache")
        site.status = 403
        refused = trained("refused", site.address, code=3)
    assert "may not be read with these credentials" in (refused / "logs/rank0.log").read_text()
