"""A training step of a recipe with kernels matches the step in plain torch."""

import torch
import torchvision
from torch import nn
from torchvision.models.resnet import Bottleneck, ResNet

import tests.ops.cpu_operations  # noqa: F401
from resnet_recipes import data, ops
from resnet_recipes.ops import Operations
from resnet_recipes.ops.kernels import batch_norm, statistics
from resnet_recipes.planning.planner import make_plan
from resnet_recipes.recipe.build import build_recipe
from resnet_recipes.training.build import build
from resnet_recipes.training.distributed import Rank
from tests.ops.interpreted.interpreted_kernels import register_kernels
from tests.shared.plans import SMALL
from tests.shared.tables import parse_settings
from tests.training.recording import record

RECIPE = (
    f"{SMALL} max_duration=1ba schedule.warmup=0ba optimizer.name=decoupled_sgdw "
    "data.train_size=12 data.eval_resize=12 data.eval_size=12 batch.global_size=4 batch.bn_size=4 "
    "methods.bce_loss={} methods.blurpool={} methods.label_smoothing={} methods.mixup={}"
)


class TinyResNet(ResNet):
    """A ResNet with a stem and two narrow bottleneck blocks; the second halves the map."""

    def __init__(self, num_classes):
        super().__init__(Bottleneck, [1, 1, 1, 1])
        self.fc = nn.Linear(32, num_classes)
        self.__class__ = ResNet  # only the stem of this class is fused

    def _make_layer(self, block, planes, *rest, **options):
        if planes <= 128:
            return super()._make_layer(block, planes // 16, *rest, **options)
        return nn.Sequential()


def train_step(kernels):
    recipe, problems = build_recipe(parse_settings(f"{RECIPE} precision.kernels='{kernels}'"))
    assert not problems
    run = build(
        make_plan(recipe, data.survey_images(recipe.data), 1), Rank(0, 1, torch.device("cpu"))
    )
    recording = record(run)
    run.close()
    return run, recording.losses[0]


def join_momenta(run):
    """Return the momenta of all weights as one vector: the gradients after the first step."""
    return torch.cat([state["momentum_buffer"].flatten() for state in run.optimizer.state.values()])


def test_step_with_kernels_matches_torch(monkeypatch):
    sizes = (
        (batch_norm, "ROWS", 128),
        (statistics, "ROWS", 256),
    )
    for module, name, size in sizes:  # sizes for a CPU: few tiles, barely larger than the maps
        monkeypatch.setattr(module, name, size)
    monkeypatch.setattr(torchvision.models, "resnet18", TinyResNet)
    expected, loss = train_step("off")
    fused = {name: getattr(ops, name).fused for name in Operations._fields if name != "notes"}
    monkeypatch.setattr(ops, "choose", lambda *_: Operations(**fused))
    with torch.library._scoped_library("resnet_recipes", "IMPL") as library:
        register_kernels(library, ops.batch_norm)
        actual, actual_loss = train_step("auto")
    assert actual.operations.list_fused() == list(fused)
    torch.testing.assert_close(actual_loss, loss)
    torch.testing.assert_close(
        actual.model.state_dict(), expected.model.state_dict(), rtol=1e-4, atol=1e-5
    )
    assert (
        torch.dist(join_momenta(actual), join_momenta(expected))
        < 1e-4 * join_momenta(expected).norm()
    )
