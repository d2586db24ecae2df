"""The baselines against tables computed by the code of their sources.

tools/baseline_tables.py writes golden/peers.json.
"""

import json
from itertools import groupby
from pathlib import Path
from statistics import fmean

import pytest
import torch
import torchvision

from resnet_recipes.recipe.library import find_packaged_folder
from tests.shared.plans import plan_imagenet

PEERS = json.loads((Path(__file__).parent / "golden/peers.json").read_text())
CASES = [
    arguments
    for arguments in PEERS["recipes"]
    if (find_packaged_folder() / f"{arguments.split()[0]}.yaml").exists()
]
BASELINES = sorted({arguments.split()[0] for arguments in CASES})


@pytest.mark.parametrize("arguments", CASES)
def test_baseline_learning_rates_match_the_source(arguments):
    plan = plan_imagenet(arguments)
    expected = PEERS["recipes"][arguments]
    steps = plan.steps_per_epoch
    assert (plan.epochs, steps) == (expected["epochs"], expected["steps_per_epoch"])
    assert plan.warmup == expected["warmup_epochs"] * steps
    for epoch, ends in enumerate(expected["rates"]):
        ours = [plan.lr_at(step) for step in (epoch * steps, epoch * steps + steps - 1)]
        assert ours == pytest.approx(ends, rel=1e-8, abs=1e-12), epoch


@pytest.mark.parametrize(
    "arguments", [arguments for arguments in CASES if PEERS["recipes"][arguments]["means"]]
)
def test_baseline_mean_lr_per_epoch_matches_the_source(arguments):
    plan = plan_imagenet(arguments)
    expected = PEERS["recipes"][arguments]
    for epoch, mean in enumerate(expected["means"]):
        ours = map(
            plan.lr_at, range(epoch * plan.steps_per_epoch, (epoch + 1) * plan.steps_per_epoch)
        )
        assert fmean(ours) == pytest.approx(mean, rel=1e-8, abs=1e-12), epoch


@pytest.mark.parametrize("arguments", CASES)
def test_baseline_image_sizes_match_the_source(arguments):
    ours = [
        [size, len(list(group))] for size, group in groupby(plan_imagenet(arguments).image_sizes)
    ]
    assert ours == PEERS["recipes"][arguments]["sizes"]


@pytest.mark.parametrize("name", BASELINES)
def test_parameters_without_decay_match_the_source(name):
    arguments = next(arguments for arguments in CASES if arguments.split()[0] == name)
    with torch.device("meta"):  # only names and shapes matter
        model = torchvision.models.resnet50()
    names = {id(parameter): name for name, parameter in model.named_parameters()}
    groups = plan_imagenet(arguments).recipe.optimizer.groups(model)
    spared = [
        names[id(parameter)]
        for group in groups
        if not group["weight_decay"]
        for parameter in group["params"]
    ]
    assert sorted(spared) == PEERS["not_decayed"][PEERS["recipes"][arguments]["not_decayed"]]
    assert sum(len(group["params"]) for group in groups) == 161


def test_downsampling_batchnorm_decays_if_source_matches_names():
    [spared] = {
        tuple(PEERS["not_decayed"][PEERS["recipes"][name]["not_decayed"]])
        for name in ("nvidia_dle", "ffcv_rn50 epochs=16")
    }
    assert "layer1.0.bn1.weight" in spared
    assert not {"layer1.0.downsample.1.weight", "fc.bias"} & set(spared)


def test_mlperf_lr_is_close_to_reference():
    plan = plan_imagenet("nvidia_mlperf_pt")
    decay = plan.total_steps - plan.warmup + 1
    differences = [
        abs(plan.lr_at(plan.warmup + step) - (1e-4 + (10.5 - 1e-4) * (1 - step / decay) ** 2))
        for step in range(decay)
    ]
    assert 3e-4 < max(differences) < 4e-4


def test_nvidia_mlperf_evaluates_at_published_and_last_epoch():
    plan = plan_imagenet("nvidia_mlperf_pt")
    epochs = [e for e in range(1, 38) if plan.evaluates_at(e * plan.steps_per_epoch)]
    assert epochs == [*range(3, 36, 4), 37]
