"""The native steps against torch's operations, and what they refuse."""

import numpy as np
import pytest
import torch
from torch import nn

from resnet_recipes.optim import LAMB, LARS, SGD, DecoupledSGDW, OptimizerSettings
from resnet_recipes.optim.native import steps

SETTINGS = [
    SGD(lr=0.1, weight_decay=1e-3),
    SGD(lr=0.1, nesterov=True),
    SGD(lr=0.1, momentum=0.0),
    DecoupledSGDW(lr=0.1, weight_decay=1e-3),
    LARS(lr=1.0),
    LAMB(lr=0.01),
]

each = pytest.mark.parametrize(
    "settings", SETTINGS, ids=["sgd", "nesterov", "plain", "decoupled", "lars", "lamb"]
)


@pytest.fixture(autouse=True)
def _built() -> None:
    """Skip tests of the native library if it was not built."""
    if steps.library() is None:
        pytest.skip(
            "the native optimizer steps were not built: python setup.py build_ext --inplace"
        )


def conv() -> nn.Conv2d:
    """Return a convolution in channels_last memory, large enough for several blocks and a part of one."""
    torch.manual_seed(0)
    return nn.Conv2d(37, 41, 3).to(memory_format=torch.channels_last)


def walked(settings: OptimizerSettings, model: nn.Module, count: int) -> list[torch.Tensor]:
    """Take steps along random gradients; return weights and state."""
    optimizer, generator = settings.build(model), torch.Generator().manual_seed(1)
    for _ in range(count):
        for parameter in model.parameters():
            parameter.grad = torch.empty_like(parameter).copy_(
                torch.randn(parameter.shape, generator=generator)
            )
        optimizer.step()
    kept = [tensor for state in optimizer.state.values() for _, tensor in sorted(state.items())]
    return [tensor.detach().clone() for tensor in [*model.parameters(), *kept]]


@each
def test_fifty_steps_are_those_of_torchs_operations(settings, monkeypatch):
    native = walked(settings, conv(), 50)
    monkeypatch.setattr(steps, "library", lambda: None)
    for ours, theirs in zip(native, walked(settings, conv(), 50), strict=True):
        torch.testing.assert_close(ours, theirs, rtol=1e-5, atol=1e-6)


@each
def test_any_number_of_threads_gives_the_same_bits(settings, monkeypatch):
    monkeypatch.setattr(steps, "VALUES_PER_THREAD", 1)
    monkeypatch.setattr(torch, "get_num_threads", lambda: 1)
    alone = walked(settings, conv(), 3)
    monkeypatch.setattr(torch, "get_num_threads", lambda: 5)
    assert all(map(torch.equal, alone, walked(settings, conv(), 3)))


def test_a_gradient_in_another_memory_format_is_put_in_order():
    plain, other = conv(), conv()
    for model, memory_format in ((plain, torch.channels_last), (other, torch.contiguous_format)):
        optimizer = SGD(lr=0.1).build(model)
        grad = torch.arange(model.weight.numel(), dtype=torch.float32).view(model.weight.shape)
        model.weight.grad = None  # torch allows another memory format only for a first gradient
        model.weight.grad = grad.contiguous(memory_format=memory_format)
        optimizer.step()
    assert torch.equal(plain.weight, other.weight)


@pytest.mark.parametrize(
    "wrong",
    [torch.zeros(41, 37, 3, 3), torch.zeros(1), torch.zeros(41, 37, 3, 3).double()],
    ids=["memory format", "shape", "dtype"],
)
def test_a_state_that_does_not_fit_its_parameter_is_refused(wrong):
    model = conv()
    optimizer = SGD(lr=0.1).build(model)
    optimizer.state[model.weight]["momentum_buffer"] = wrong
    model.weight.grad = torch.ones_like(model.weight)
    with pytest.raises(RuntimeError, match="mean"):
        optimizer.step()


def test_other_dtypes_and_views_of_larger_tensors_step_with_torch():
    assert SGD().build(conv().double()).native is None
    part = nn.Linear(4, 4, bias=False)
    part.weight = nn.Parameter(torch.zeros(4, 8)[:, ::2])
    assert SGD().build(part).native is None
    assert SGD().build(conv()).native is not None


def test_a_missing_library_is_told_where_it_would_serve(monkeypatch):
    assert steps.note_on(SGD().build(conv())) == ""
    monkeypatch.setattr(steps, "library", lambda: None)
    assert "doctor native" in steps.note_on(SGD().build(conv()))
    assert steps.note_on(SGD().build(conv().double())) == ""
    assert steps.note_on(torch.optim.AdamW(conv().parameters())) == ""


def test_a_file_that_is_no_library_counts_as_missing(monkeypatch, tmp_path):
    (tmp_path / "libsteps.so").write_text("not a library")
    monkeypatch.setattr(steps, "PATH", tmp_path / "libsteps.so")
    assert steps.library.__wrapped__() is None


def test_a_library_from_other_sources_counts_as_missing(monkeypatch):
    monkeypatch.setattr(steps, "PARAMETER", np.dtype([("weight", "u8")]))
    assert steps.library.__wrapped__() is None
