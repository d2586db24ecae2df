"""Every trained network is opened in the same way, with the image settings of its library."""

import pytest
import safetensors.torch
import torch
import torchvision

from resnet_recipes.base.errors import NotReadyError, RecipeError
from resnet_recipes.base.model_config import ModelConfig
from resnet_recipes.data.base import MEAN, STD
from resnet_recipes.network.open import AbsentError, iterate_notes, open_network
from resnet_recipes.network.pretrained import open_weights
from tests.shared.checks import get_problem
from tests.shared.tiny_networks import build_narrow_resnet18

HALF = (127.5,) * 3

#: Names of the same published weights.
PUBLISHED = ("timm:test_vit", "timm:test_vit.r160_in1k", "hf:timm/test_vit.r160_in1k")
TORCHVISION = ("torchvision:resnet18", "torchvision:IMAGENET1K_V1", "torchvision")


@pytest.fixture
def put_in_hub(tmp_path, monkeypatch):
    monkeypatch.setenv("HF_HUB_CACHE", str(tmp_path / "hub"))

    def put(state: dict, repository: str):
        folder = tmp_path / "hub" / f"models--{repository.replace('/', '--')}" / "snapshots" / "0a"
        folder.mkdir(parents=True)
        safetensors.torch.save_file(state, folder / "model.safetensors")
        return folder

    return put


@pytest.mark.parametrize("published", PUBLISHED)
def test_published_name_sets_network_and_image_settings(published, put_in_hub):
    timm = pytest.importorskip("timm")
    model = timm.create_model("test_vit").eval()
    problem = get_problem(AbsentError, open_network, published)
    assert problem.key == published
    fetch = problem.corrections[0]
    assert fetch.endswith("hf download timm/test_vit.r160_in1k model.safetensors")
    put_in_hub(model.state_dict(), "timm/test_vit.r160_in1k")
    network = open_network(published)
    about = network.about
    assert (about.architecture, about.num_classes) == ("timm:test_vit", 1000)
    assert (about.mean, about.std) == (HALF, HALF)
    assert (about.eval_resize, about.eval_size, about.eval_interpolation) == (168, 160, "bicubic")
    images = torch.randn(2, 3, 160, 160)
    torch.testing.assert_close(network(images), model(images))
    assert list(iterate_notes(network)) == []
    assert network.classes[0] == "n01440764"


def test_published_name_of_another_network_is_rejected(put_in_hub):
    pytest.importorskip("timm")
    problem = get_problem(
        NotReadyError,
        open_network,
        "timm:test_vit.r160_in1k",
        ModelConfig("timm:test_efficientnet"),
    )
    assert problem.clause == "has no weights for timm:test_efficientnet"
    assert problem.fix == "model.name=timm:test_vit"


@pytest.mark.parametrize(
    ("published", "near"),
    [("timm:test_vi", "timm:test_vit"), ("torchvision:resnet5", "torchvision:resnet")],
)
def test_unknown_published_name_is_rejected(published, near):
    pytest.importorskip("timm")
    problem = get_problem(NotReadyError, open_network, published)
    assert (problem.key, problem.clause) == (
        published,
        f"{published.partition(':')[0]} has no such network",
    )
    assert problem.corrections[0].startswith(near)
    assert f"use:   {problem.corrections[0]}" in problem.lines()
    with pytest.raises(RecipeError) as caught:
        open_network("torchvision:IMAGENET1K_V1", ModelConfig("torchvision:resnet5"))
    assert caught.value.problems[0].key == "model.name"
    with pytest.raises(NotReadyError) as caught:
        open_network(f"{published.partition(':')[0]}:xyzzy")
    (hint,) = caught.value.problems[0].advice
    assert hint.startswith("choose from ")


@pytest.mark.parametrize(
    ("published", "name", "fix"),
    [
        ("torchvision:NOPE", "resnet18", "torchvision:IMAGENET1K_V1"),
        ("torchvision", "timm:resnet18", "timm:resnet18.a1_in1k"),
    ],
)
def test_unknown_torchvision_weights_are_rejected_with_others(published, name, fix):
    pytest.importorskip("timm")
    with pytest.raises(NotReadyError) as caught:
        open_network(published, ModelConfig(name))
    assert caught.value.problems[0].lines()[1] == f"use:   {fix}"
    with pytest.raises(NotReadyError) as caught:
        open_weights(ModelConfig(name, weights=published))
    assert caught.value.problems[0].lines()[1] == f"use:   model.weights={fix}"


def test_undescribed_file_uses_named_network_and_images(tmp_path):
    timm = pytest.importorskip("timm")
    path = tmp_path / "w.safetensors"
    safetensors.torch.save_file(timm.create_model("test_vit", num_classes=3).state_dict(), path)
    network = open_network(str(path), ModelConfig("timm:test_vit"))
    assert (network.about.mean, network.about.num_classes) == (HALF, 3)
    assert network.classes == ("0", "1", "2")
    assert any("mean of 0.5/0.5/0.5" in note for note in iterate_notes(network))


def test_resnet_file_is_recognized_by_its_names(tmp_path, monkeypatch):
    monkeypatch.setattr(torchvision.models, "resnet18", build_narrow_resnet18)
    torch.save(build_narrow_resnet18(num_classes=3).state_dict(), tmp_path / "mine.pth")
    network = open_network(str(tmp_path / "mine.pth"))
    assert network.about.architecture == "resnet18"
    assert (network.about.mean, network.about.std) == (MEAN, STD)
    assert network.about.eval_resize == 256
    assert "without BlurPool" in next(iterate_notes(network))


def test_torchvision_weights_set_image_settings_of_each_file():
    from resnet_recipes.network.image_settings import find_image_settings

    v1, v2 = (weights.url.rpartition("/")[2] for weights in torchvision.models.ResNet50_Weights)
    sizes = [
        find_image_settings("resnet50", f"/a/{name}")["eval_resize"]
        for name in (v1, v2, "other.pth")
    ]
    assert sizes == [256, 232, 256]
    assert find_image_settings("torchvision:swin_t")["eval_interpolation"] == "bicubic"
    assert find_image_settings("resnet50", "torchvision")["eval_resize"] == 232
    assert find_image_settings("resnet50", "torchvision:IMAGENET1K_V1")["eval_resize"] == 256


@pytest.mark.parametrize("published", TORCHVISION)
def test_torchvision_weights_are_found_by_either_name(published, tmp_path, monkeypatch):
    monkeypatch.setenv("TORCH_HOME", str(tmp_path))
    model = None if published == "torchvision:resnet18" else ModelConfig("resnet18")
    with pytest.raises(AbsentError, match=r"resnet18-f37072fd\.pth does not exist"):
        open_network(published, model)
    if model:
        with pytest.raises(NotReadyError, match="does not name its network"):
            open_network(published)
