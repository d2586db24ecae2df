from collections.abc import Callable
from pathlib import Path

import torch
import torchvision

from resnet_recipes.network import archive
from resnet_recipes.network.weights import write_weights
from resnet_recipes.train.run import Run


def test_torchvision_loads_the_weights_and_gives_the_same_output(make_run: Callable[..., Run], tmp_path: Path):
    run = make_run(methods={"stochastic_depth": {"drop_rate": 0.3}})
    before = {name: tensor.clone() for name, tensor in run.model.state_dict().items()}
    weights = archive.read(write_weights(run.model, tmp_path / "weights.pt"))
    plain = torchvision.models.resnet18(num_classes=run.plan.num_classes).eval()
    plain.load_state_dict(weights)
    images = torch.randn(2, 3, 32, 32)
    run.model.eval()
    with torch.no_grad():
        torch.testing.assert_close(plain(images), run.model(images), rtol=1e-4, atol=1e-4)      # the factors are multiplied elsewhere
    assert all(torch.equal(tensor, before[name]) for name, tensor in run.model.state_dict().items())


def test_averaged_weights_are_the_ones_that_are_written(make_run: Callable[..., Run], tmp_path: Path):
    run = make_run(methods={"ema": {}})
    run.methods.load_state_dict({f"ema.{name}": torch.zeros_like(tensor) for name, tensor in run.model.state_dict().items()})
    with run.methods.eval_weights(run.model):
        weights = archive.read(write_weights(run.model, tmp_path / "weights.pt"))
    assert all((tensor == 0).all() for tensor in weights.values())
