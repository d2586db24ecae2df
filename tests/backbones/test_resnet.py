"""The recipes' ResNets with another stem or width."""

import pytest
import torch

from resnet_recipes import backbones, load
from resnet_recipes.backbones import resnet as build
from resnet_recipes.base.architecture import ModelConfig
from resnet_recipes.estimating.network import network_of
from resnet_recipes.methods.stack import Stack
from resnet_recipes.network import about
from resnet_recipes.network.build import build_network
from resnet_recipes.network.weights import write_weights
from resnet_recipes.planning.plan import IMAGENET, make_plan
from resnet_recipes.recipe.compose import compose

CPU = torch.device("cpu")


@pytest.mark.parametrize("name", ["resnet18", "resnet50"])
def test_a_width_multiplies_every_layers_channels_and_keeps_names(name: str):
    plain, wide, narrow = (
        backbones.structure(name, 10, arguments).state_dict()
        for arguments in ({}, {"width": 2.0}, {"width": 0.25, "small_stem": True})
    )
    assert list(plain) == list(wide) == list(narrow)
    for key, weight in plain.items():
        channels = int(key == "fc.weight")  # its outputs are the classes
        if weight.ndim and key != "fc.bias":
            assert wide[key].shape[channels] == 2 * weight.shape[channels], key
            assert narrow[key].shape[channels] == weight.shape[channels] / 4, key


def test_a_small_stem_keeps_every_pixel():
    network = backbones.structure("resnet18", 10, {"small_stem": True})
    stem = torch.nn.Sequential(network.conv1, network.bn1, network.relu, network.maxpool)
    assert stem(torch.empty(1, 3, 28, 28, device="meta")).shape == (1, 64, 28, 28)
    assert network.conv1.weight.shape == (64, 3, 3, 3)


def test_a_network_for_grey_images_takes_the_mean_of_the_colours():
    torch.manual_seed(0)
    network = build("resnet18", 3, width=0.125, in_channels=1).eval()
    colours = torch.randn(2, 3, 32, 32)
    assert network.conv1.weight.shape == (8, 1, 7, 7)
    grey = colours.mean(1, keepdim=True)
    torch.testing.assert_close(network(colours), network(grey))
    torch.testing.assert_close(network(colours), network(grey.expand(2, 3, 32, 32)))


def test_other_networks_are_initialised_as_torchvision_does():
    torch.manual_seed(0)
    weight = build("resnet18", 10, small_stem=True, width=0.5).layer4[1].conv2.weight
    assert weight.std().item() == pytest.approx((2 / (256 * 9)) ** 0.5, rel=0.02)


def test_a_plan_counts_the_arithmetic_of_a_stem_and_a_width():
    # He et al., 2015, count 0.56 billion multiplications and additions of this ResNet-18
    plain = network_of(ModelConfig("resnet18", stem="small"), 10, Stack({}))
    half = network_of(ModelConfig("resnet18", stem="small", width=0.5), 10, Stack({}))
    assert plain.operations(32).training == pytest.approx(3 * 2 * 0.556e9, rel=0.01)
    assert half.operations(32).training == pytest.approx(
        plain.operations(32).training / 4, rel=0.01
    )
    assert plain.parameters == 11_173_962


def test_weights_describe_their_stem_and_width(tmp_path):
    recipe = compose("small", ["methods.blurpool={}", "model.width=0.125"], needs_data=False).recipe
    methods = Stack.of(recipe.methods)
    model = build_network(recipe, methods, 5, CPU).eval()
    path = write_weights(model, tmp_path / "w.safetensors", about.of(recipe, (), 5))
    images = torch.randn(2, 3, 32, 32)
    network = load(path)
    assert network.about.arguments == {"small_stem": True, "width": 0.125}
    torch.testing.assert_close(network(images), model(images))


def test_results_are_not_those_of_another_stem():
    words = ["~methods.progressive_resizing"]  # one size to count
    for stem, published in (("standard", True), ("small", False)):
        recipe = compose("mild", [*words, f"model.stem={stem}"], needs_data=False).recipe
        assert bool(make_plan(recipe, IMAGENET, 8).published) == published


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"width": 0.3}, "a multiple of 0.125"),
        ({"width": 0.0}, "a multiple of 0.125"),
        ({"in_channels": 4}, "must be 3 or 1"),
        ({"in_channels": 1, "name": "timm:resnet18"}, "model.in_channels=3"),
        ({"stem": "tiny"}, "must be standard or small"),
        ({"stem": "small", "name": "timm:resnet18"}, "model.stem=standard"),
        ({"width": 2.0, "name": "torchvision:resnet18"}, "model.width=1.0"),
    ],
)
def test_a_stem_or_width_that_cannot_be_is_refused(settings: dict, said: str):
    assert said in "".join(map(str, ModelConfig(**settings).problems()))
