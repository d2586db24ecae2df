"""Loss scaling, gradient clipping and checks for values that are not finite."""

import copy

import pytest
import torch
from torch import nn
from torch.profiler import ProfilerActivity, profile

from resnet_recipes.base.errors import TrainingError
from resnet_recipes.methods.optimizers import DecoupledSGDW
from resnet_recipes.training.precision import Precision, resolve_dtype

CPU = torch.device("cpu")


def make_batch_norm_network() -> nn.Module:
    """Return a network with BatchNorm, for 8 px images."""
    torch.manual_seed(0)
    return nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.Flatten(), nn.Linear(4 * 36, 2))


def take_scaled_step(
    model: nn.Module, optimizer: torch.optim.Optimizer, precision: Precision, images: torch.Tensor
) -> None:
    precision.copy_statistics()
    with precision.autocast():
        loss = model(images).float().square().mean()
    precision.backward(loss)
    precision.step_optimizer(optimizer, None)
    optimizer.zero_grad()


@pytest.mark.parametrize("is_first_step", [True, False])
def test_overflow_skips_step_and_restores_statistics(is_first_step):
    model = make_batch_norm_network()
    optimizer = DecoupledSGDW(lr=0.1).build(model)
    precision = Precision(CPU, torch.float16, model)
    good = torch.randn(8, 3, 8, 8)
    if not is_first_step:
        take_scaled_step(model, optimizer, precision, good)
    slots = [optimizer.state[p] for p in model.parameters()]
    before, momenta = copy.deepcopy((model.state_dict(), slots))
    bad = good.clone()
    bad[0, 0, 0, 0] = float("inf")
    take_scaled_step(model, optimizer, precision, bad)
    for key, value in model.state_dict().items():
        assert torch.equal(value, before[key]) or "num_batches" in key
    for p, old in zip(model.parameters(), momenta, strict=True):
        now = optimizer.state[p]["momentum_buffer"]
        assert torch.equal(now, old.get("momentum_buffer", torch.zeros_like(now)))
    assert precision.scaler.get_scale() == 2.0**15  # halved once
    take_scaled_step(model, optimizer, precision, good)
    assert not torch.equal(model[0].weight, before["0.weight"])
    assert all(value.isfinite().all() for value in model.state_dict().values())


def test_restoring_statistics_takes_constant_number_of_operations():
    counts = []
    for layers in (1, 30):
        model = nn.Sequential(*[nn.BatchNorm2d(3) for _ in range(layers)], nn.Conv2d(3, 3, 1))
        optimizer = DecoupledSGDW(lr=0.1).build(model)
        precision = Precision(CPU, torch.float16, model)
        with profile(activities=[ProfilerActivity.CPU]) as trace:
            precision.copy_statistics()
            precision.step_optimizer(*set_gradients(precision, optimizer, model))
        called = {event.key: event.count for event in trace.key_averages()}
        counts.append((called["aten::where"], called["aten::cat"]))
    assert counts == [(1, 2)] * 2


def set_gradients(
    precision: Precision, optimizer: torch.optim.Optimizer, model: nn.Module
) -> tuple:
    """Set the scaled gradient of every parameter, as backward would; return a step's arguments."""
    precision.scaler.scale(torch.ones(()))
    for p in model.parameters():
        p.grad = torch.ones_like(p)
    return optimizer, None


@pytest.mark.parametrize(("dtype", "scale"), [(torch.float32, 1.0), (torch.float16, 2.0**16)])
def test_clipping_bounds_norm_of_full_gradient(dtype, scale):
    model = nn.Linear(3, 3)
    optimizer = DecoupledSGDW(lr=1.0, momentum=0, weight_decay=0).build(model)
    precision = Precision(CPU, dtype, model)
    precision.scaler.scale(torch.ones(()))
    before = nn.utils.parameters_to_vector(model.parameters()).clone()
    for p in model.parameters():
        p.grad = torch.full_like(p, 100.0 * scale)
    precision.step_optimizer(optimizer, clip_norm=0.5)
    moved = nn.utils.parameters_to_vector(model.parameters()) - before
    assert moved.norm().item() == pytest.approx(0.5, rel=1e-5)


def test_cpu_dtype_defaults_to_float32():
    assert resolve_dtype("auto", CPU) == torch.float32
    assert resolve_dtype("bf16", CPU) == torch.bfloat16


def test_check_reports_first_step_of_non_finite_loss():
    precision = Precision(CPU, torch.float32, nn.Linear(1, 1))
    precision.check([1.0, 2.0], 20)
    with pytest.raises(TrainingError, match=r"at step 20\n.*learning rate"):
        precision.check([1.0, float("nan"), float("nan")], 21)


def test_check_float16_stops_only_after_scale_collapse():
    precision = Precision(CPU, torch.float16, nn.Linear(1, 1))
    precision.scaler.scale(torch.ones(()))
    precision.scaler.update(2.0**-10)
    precision.check([float("inf")], 1)
    precision.scaler.update(2.0**-12)
    for loss in (float("inf"), 0.7):  # all gradients may overflow while the losses are finite
        with pytest.raises(TrainingError, match="overflow at every step"):
            precision.check([loss], 1)
