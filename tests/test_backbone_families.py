"""Plan and train every torchvision network, and a small network of each timm family."""

from dataclasses import asdict

import pytest
import torch
import torchvision

from resnet_recipes import backbones
from resnet_recipes.base.model_config import ModelConfig, find_implied_settings
from resnet_recipes.methods.stack import Stack
from resnet_recipes.network.build import build_model
from resnet_recipes.planning.network_facts import BuiltNetworkFacts
from tests.training.recording import record

timm = pytest.importorskip("timm")

#: Parts of the names of small networks, the smallest first.
SMALL = ("atto", "femto", "pico", "nano", "xxt", "xxs", "zepto", "tiny", "xs", "small", "mini")
SMALL += ("_s", "025", "050", "18", "26", "002", "b0", "a0", "_t", "_m", "0")
LARGEST = 30_000_000  # parameters of a trained network
WIDEST = 256  # maximum image size of a trained network, in pixels

#: Families whose classifier is used for distillation or for parts of the image.
REJECTED = ("crossvit", "efficientformer", "efficientvim", "repvit", "swiftformer", "volo")


def find_smallest(family: str) -> str:
    """Return the smallest network of a timm family according to its name, or the first."""
    networks = [name for name in timm.list_models(module=family) if not name.startswith("test_")]
    sizes = {name: [size in name for size in (*SMALL, "")].index(True) for name in networks}
    return min(networks, key=lambda name: (sizes[name], len(name)))


TORCHVISION = torchvision.models.list_models(module=torchvision.models)
NAMES = [f"torchvision:{name}" for name in TORCHVISION]
NAMES += [f"timm:{find_smallest(family)}" for family in timm.list_modules()]


def plan_network(name: str) -> tuple[ModelConfig, BuiltNetworkFacts, int]:
    model = ModelConfig(name, **find_implied_settings(name))
    facts = BuiltNetworkFacts(model, 10, Stack({}))
    network_facts = backbones.get_pretrained_cfg(backbones.build_structure(name, 10, model.args))
    return model, facts, network_facts.get("input_size", (3, 224))[1]


@pytest.mark.parametrize(
    "name",
    [
        pytest.param("torchvision:regnet_y_400mf", marks=pytest.mark.exhaustive),
        "timm:vit_tiny_r_s16_p8_224",
    ],
)
def test_networks_that_compute_when_built_are_planned(name):
    model, facts, image_size = plan_network(name)
    assert not [*facts.problems(), *facts.size_problems([image_size], image_size)]
    assert facts.parameters == sum(
        weight.numel() for weight in build_model(model, 10, seed=0).parameters()
    )


@pytest.mark.exhaustive
@pytest.mark.parametrize("name", NAMES)
def test_every_network_is_planned_or_rejected(name):
    _, facts, image_size = plan_network(name)
    problems = [*facts.problems(), *facts.size_problems([image_size], image_size)]
    is_rejected = name.partition(":")[2].startswith(REJECTED)
    assert ["several classifiers" in problem.clause for problem in problems] == [True] * is_rejected


@pytest.mark.exhaustive
@pytest.mark.parametrize("name", NAMES)
def test_every_small_network_takes_two_steps(name, make_run):
    model, facts, image_size = plan_network(name)
    if facts.parameters > LARGEST or image_size > WIDEST or [*facts.problems()]:
        pytest.skip("too large for two steps here, or rejected")
    run = make_run(
        "max_duration=2ba batch.global_size=4 batch.bn_size=4 batch.eval_size=4 "
        "schedule.name=constant schedule.warmup=0ba optimizer.name=sgd optimizer.lr=0.001",
        model=asdict(model),
        data={"train_size": image_size, "eval_size": image_size, "eval_resize": image_size},
    )
    before = [weight.detach().clone() for weight in run.model.parameters()]
    assert torch.stack(record(run).losses).isfinite().all()
    assert all(weight.isfinite().all() for weight in run.model.parameters())
    assert not all(map(torch.equal, before, run.model.parameters()))
