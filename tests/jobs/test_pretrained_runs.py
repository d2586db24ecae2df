"""Runs from pretrained weights: equal on one rank and two, and resumable without the file."""

import os
import signal
from pathlib import Path

import pytest
import torch

from resnet_recipes.recipe.compose import compose
from resnet_recipes.recipe.schema import Recipe
from resnet_recipes.run_folder.ending import find_first_failure
from tests.jobs.small_runs import SMALL_HOT, SmallRun, assert_same_weights, read_state
from tests.shared.tiny_networks import build_shallow_resnet18

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def foreign_weights(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Weights with torchvision names, for other classes than the run."""
    torch.manual_seed(5)
    path = tmp_path_factory.mktemp("weights") / "theirs.pt"
    torch.save(build_shallow_resnet18(num_classes=7).state_dict(), path)
    return path


@pytest.fixture(scope="module")
def frozen_configs(foreign_weights: Path) -> dict[int, Recipe]:
    """A small Hot by number of ranks, with a frozen stem and a slower backbone."""
    arguments = [
        *SMALL_HOT,
        f"model.weights={foreign_weights}",
        "model.freeze=layer1",
        "optimizer.backbone_rate=0.1",
    ]
    return {
        ranks: compose("hot", [*arguments, f"batch.bn_size={6 // ranks}"]).recipe
        for ranks in (1, 2)
    }


def test_frozen_run_resumes_bit_identically_without_weights_file(
    tmp_path, frozen_configs, foreign_weights, launcher
):
    whole = SmallRun(tmp_path / "whole", frozen_configs, launcher, 2).finish()
    loaded = torch.load(foreign_weights, weights_only=True)
    frozen = [name for name in loaded if name.startswith(("conv1.", "layer1.")) and "conv" in name]
    assert len(frozen) == 3
    learned = read_state(whole.folder)["model"]
    assert all(torch.equal(learned[name], loaded[name]) for name in frozen)
    assert not torch.equal(learned["layer2.0.conv1.weight"], loaded["layer2.0.conv1.weight"])

    stopped = SmallRun(tmp_path / "stopped", frozen_configs, launcher, 2)
    stopped.start().await_step(4)
    os.kill(stopped.command.pid, signal.SIGTERM)
    assert stopped.wait() == (75, [75, 75])
    foreign_weights.rename(tmp_path / "away.pt")
    try:
        assert_same_weights(stopped.finish().folder, whole.folder)
    finally:
        (tmp_path / "away.pt").rename(foreign_weights)


def test_rank_reports_weights_deleted_before_start(
    tmp_path, frozen_configs, foreign_weights, launcher
):
    foreign_weights.rename(tmp_path / "away.pt")
    run = SmallRun(tmp_path / "run", frozen_configs, launcher, 1)
    assert run.start().wait() == (3, [3])
    assert "does not exist" in find_first_failure(run.monitor.read_endings()).message
