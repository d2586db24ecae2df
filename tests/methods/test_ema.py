"""EMA against its formula and worked numbers; weights are restored bit-identically."""

import contextlib
from copy import deepcopy

import pytest
import torch
from torch import nn
from torch.optim.swa_utils import AveragedModel

from resnet_recipes.methods.ema import EMA
from tests.methods.inputs import make_network, make_now
from tests.shared.checks import is_identical

#: Values that the settings must reject.
WRONG = {"half_life": ["0ba", "soon"], "update_interval": ["0ba", "20"], "delay": ["later"]}


class OneWeight(nn.Module):
    def __init__(self, value: float = 0.0):
        super().__init__()
        self.w = nn.Parameter(torch.tensor(value, dtype=torch.float64))

    def set(self, value: float) -> None:
        with torch.no_grad():
            self.w.fill_(value)


@pytest.mark.parametrize(
    ("half_life", "interval", "decay"),
    [
        ("100ba", "20ba", 0.870550563296124),
        ("50ba", "1ba", 0.986232704493359),
        ("10ep", "2ep", 0.870550563296124),
    ],
)
def test_ema_decay_follows_interval_and_half_life(half_life, interval, decay):
    ema = EMA(half_life, interval)
    model = OneWeight(0.0)
    ema.after_step(model, make_now(0, total=10_000))
    model.set(1.0)
    ema.after_step(
        model,
        make_now(int(interval[:-2]) * (10 if interval.endswith("ep") else 1) * 5 - 1, total=10_000),
    )
    assert ema.state_dict()["w"].item() == pytest.approx(1 - decay, abs=1e-12)


def make_averaged_network(ema: EMA, steps: int = 2) -> nn.Module:
    """Return a network after random updates, each of which the averages follow."""
    model = make_network()
    for step in range(steps):
        model(torch.randn(4, 3, 16, 16)).sum().backward()
        with torch.no_grad():
            for param in model.parameters():
                param -= 0.01 * torch.randn_like(param)
        ema.after_step(model, make_now(step))
    return model


def test_ema_averages_floats_and_copies_integers():
    ema = EMA("1ba", "1ba")
    model = make_averaged_network(ema, steps=1)
    before = deepcopy(model.state_dict())
    model(torch.randn(4, 3, 16, 16))
    ema.after_step(model, make_now(1))
    after = model.state_dict()
    average = ema.state_dict()
    assert average.keys() == after.keys()
    for name in ("bn1.running_mean", "bn1.running_var", "conv1.weight"):
        assert torch.allclose(average[name], (before[name] + after[name]) / 2)
    assert average["bn1.num_batches_tracked"] == 2


def test_ema_evaluates_average_and_restores_weights():
    ema = EMA("2ba", "1ba")
    model = make_averaged_network(ema)
    before = deepcopy(model.state_dict())
    addresses = [tensor.data_ptr() for tensor in model.state_dict().values()]
    with contextlib.suppress(KeyError), ema.eval_weights(model):
        assert is_identical(model.state_dict(), ema.state_dict())
        assert not torch.equal(model.conv1.weight, before["conv1.weight"])
        raise KeyError  # a failing evaluation must not leave the average in the model
    assert is_identical(model.state_dict(), before)
    assert [tensor.data_ptr() for tensor in model.state_dict().values()] == addresses


def test_ema_evaluates_raw_weights_before_first_step():
    model = make_network()
    before = model.conv1.weight.clone()
    with EMA().eval_weights(model):
        assert torch.equal(model.conv1.weight, before)


def test_ema_updates_weights_in_place():
    ema = EMA("2ba", "1ba")
    model = make_averaged_network(ema)
    addresses = {name: tensor.data_ptr() for name, tensor in ema.state_dict().items()}
    ema.after_step(model, make_now(2))
    assert {name: tensor.data_ptr() for name, tensor in ema.state_dict().items()} == addresses


def test_loaded_ema_continues_bit_identically():
    ema = EMA("2ba", "1ba")
    resumed = EMA("2ba", "1ba")
    model = make_averaged_network(ema).to(memory_format=torch.channels_last)
    resumed.load_state_dict(deepcopy(ema.state_dict()))
    for method in (ema, resumed):
        method.after_step(model, make_now(2))
    assert is_identical(ema.state_dict(), resumed.state_dict())
    assert resumed.state_dict()["layer1.0.conv1.weight"].is_contiguous(
        memory_format=torch.channels_last
    )


def test_ema_of_another_model_is_rejected():
    ema = EMA()
    ema.load_state_dict({"conv9.weight": torch.zeros(1)})
    with pytest.raises(ValueError, match="does not fit"), ema.eval_weights(make_network()):
        pass


def test_ema_is_a_copy_until_delay_ends():
    model = nn.Linear(1, 1, bias=False)
    ema = EMA(half_life="2ba", update_interval="2ba", delay="3ba")
    averages = []
    for step in range(8):
        with torch.no_grad():
            model.weight.fill_(float(step))
        ema.after_step(model, make_now(step))
        averages.append(ema.state_dict()["weight"].item())
    assert averages == [0, 1, 1, 3, 3, 4, 4, 5.5]  # copies after 2 and 4 steps, then halves


@pytest.mark.parametrize(("steps_per_epoch", "interval"), [(7, 3), (6, 3), (5, 1), (4, 8)])
def test_ema_matches_torchvision_with_resets_in_warm_up(steps_per_epoch, interval):
    """As in references/classification/train.py of torchvision, with the torch AveragedModel."""
    torch.manual_seed(0)
    model = nn.BatchNorm1d(3)
    decay = 2 ** (-interval / 10)
    theirs = AveragedModel(
        model, avg_fn=lambda old, new, _: decay * old + (1 - decay) * new, use_buffers=True
    )
    ours = EMA(half_life="10ba", update_interval=f"{interval}ba", delay="2ep", each_epoch=True)
    for epoch in range(4):
        for step in range(steps_per_epoch):
            model(torch.randn(8, 3))
            with torch.no_grad():
                model.weight += torch.randn(3)
            if step % interval == 0:
                theirs.update_parameters(model)
                if epoch < 2:
                    theirs.n_averaged.fill_(0)
            now = make_now(
                epoch * steps_per_epoch + step, total=4 * steps_per_epoch, per_epoch=steps_per_epoch
            )
            ours.after_step(model, now)
            for name in ("weight", "running_mean", "running_var"):
                torch.testing.assert_close(
                    ours.state_dict()[name], theirs.module.state_dict()[name]
                )
