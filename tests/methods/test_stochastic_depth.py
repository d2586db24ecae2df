"""StochasticDepth against its drop rates, its formula, and the plain network that it folds into."""

import pytest
import torch
from torch import nn
from torchvision.models import resnet18, resnet50

from resnet_recipes.methods import stochastic_depth
from resnet_recipes.methods.module_class import change_class
from resnet_recipes.methods.stochastic_depth import DropExamplesBatchNorm2d, StochasticDepth
from tests.methods.inputs import make_network

#: Values that the settings must reject.
WRONG = {"drop_rate": [-0.1, 1.0], "distribution": ["quadratic"]}


def test_resnet50_rates_rise_linearly_to_drop_rate():
    rates = StochasticDepth(drop_rate=0.1).rates(16)
    assert rates == pytest.approx([0.00625 * block for block in range(1, 17)])
    assert sum(rates) == pytest.approx(0.85)
    assert torch.tensor([1 - rate for rate in rates]).prod().item() == pytest.approx(
        0.41444, abs=1e-5
    )
    assert StochasticDepth(0.2, "uniform").rates(3) == [0.2, 0.2, 0.2]
    assert StochasticDepth(0.3, "from_zero").rates(4) == pytest.approx([0, 0.1, 0.2, 0.3])  # timm


@pytest.mark.parametrize(
    ("make", "norm", "sizes"), [(resnet18, "bn2", (2, 2, 2, 2)), (resnet50, "bn3", (3, 4, 6, 3))]
)
def test_stochastic_depth_replaces_last_norm_of_every_block(make, norm, sizes):
    with torch.device("meta"):
        model = make()
    StochasticDepth().modify_model(model)
    rates = [
        (name, module.drop_rate)
        for name, module in model.named_modules()
        if isinstance(module, DropExamplesBatchNorm2d)
    ]
    assert [name for name, _ in rates] == [
        f"layer{s}.{b}.{norm}" for s, size in enumerate(sizes, 1) for b in range(size)
    ]
    assert [rate for _, rate in rates] == StochasticDepth().rates(sum(sizes))


def test_stochastic_depth_drops_examples_at_its_rate():
    norm = nn.BatchNorm2d(4)
    change_class(norm, DropExamplesBatchNorm2d, drop_rate=0.1)
    x = torch.randn(20_000, 4, 1, 1)
    torch.manual_seed(0)
    actual = norm(x)
    torch.manual_seed(0)
    keep = norm.sample_keep_factors(x)
    assert set(keep.tolist()) == {0.0, 1.0}
    assert float(keep.mean()) == pytest.approx(0.9, abs=0.01)  # five standard deviations
    plain = nn.BatchNorm2d(4)
    assert torch.equal(actual, plain(x) * keep.view(-1, 1, 1, 1))
    assert torch.equal(norm.running_mean, plain.running_mean)  # statistics use every example


def test_folded_stochastic_depth_equals_plain_network():
    model = make_network()
    StochasticDepth(drop_rate=0.5).modify_model(model)
    with torch.no_grad():
        for module in model.modules():
            if isinstance(module, nn.BatchNorm2d):
                module.bias.uniform_(-1, 1), module.running_mean.uniform_(-1, 1)
    model.eval()
    x = torch.randn(4, 3, 32, 32)
    expected = model(x)
    plain = make_network().eval()
    plain.load_state_dict(stochastic_depth.fold_state(model))
    close = {"rtol": 0, "atol": 2e-6 * expected.abs().max().item()}
    torch.testing.assert_close(plain(x), expected, **close)
    assert torch.equal(model(x), expected)  # the state is a copy
    stochastic_depth.fold(model)
    assert not any(isinstance(module, DropExamplesBatchNorm2d) for module in model.modules())
    torch.testing.assert_close(model(x), expected, **close)
