"""SAM against worked numbers and plain steps; tests/jobs/test_survival.py tests its ranks."""

import math
from collections.abc import Callable
from copy import deepcopy
from typing import NamedTuple
from unittest.mock import Mock

import pytest
import torch
from torch import Tensor, nn

from resnet_recipes.methods.sam import SAM
from resnet_recipes.training.loop import StepReporter, train
from resnet_recipes.training.run import Run
from tests.methods.inputs import make_now
from tests.shared.checks import is_identical

#: Values that the settings must reject.
WRONG = {"rho": [-0.1], "interval": [0, -1]}


def make_closure(
    params: list[Tensor], objective: Callable[[], Tensor], calls: list | None = None
) -> Callable[..., Tensor]:
    """Return a `compute` for one process that also records the weights at each call."""

    def compute(sync: bool = True) -> Tensor:
        if calls is not None:
            calls.append(([param.detach().clone() for param in params], sync))
        loss = objective()
        loss.backward()
        return loss.detach()

    return compute


def test_sam_matches_worked_example_of_two_weights():
    w = nn.Parameter(torch.tensor([1.0, 0.5]))
    calls = []
    loss = SAM(rho=0.5, interval=1).gradient(
        make_closure([w], lambda: 0.5 * (w[0] ** 2 + 4 * w[1] ** 2), calls), [w], make_now()
    )
    (at_first, first_synced), (at_second, second_synced) = calls
    assert (first_synced, second_synced) == (False, True)
    assert torch.allclose(at_second[0] - at_first[0], torch.tensor([0.2236068, 0.4472136]))
    assert torch.allclose(w.grad, torch.tensor([1.2236068, 3.7888544]))
    assert torch.equal(w, torch.tensor([1.0, 0.5]))
    assert loss.item() == pytest.approx(1.0)
    assert torch.allclose(w - 0.1 * w.grad, torch.tensor([0.87763932, 0.12111456]))


def test_sam_norm_spans_all_tensors_with_gradient():
    a = nn.Parameter(torch.zeros(2))
    b = nn.Parameter(torch.zeros(1))
    idle = nn.Parameter(torch.ones(1))
    calls = []
    SAM(rho=0.5, interval=1).gradient(
        make_closure([a, b, idle], lambda: 3 * a[0] + 4 * b[0], calls), [a, b, idle], make_now()
    )
    moved = calls[1][0]
    assert torch.allclose(moved[0], torch.tensor([0.3, 0.0]))
    assert torch.allclose(moved[1], torch.tensor([0.4]))
    assert idle.grad is None
    assert torch.equal(idle, torch.ones(1))


def test_sam_restores_weights_and_reuses_buffers():
    torch.manual_seed(0)
    model = nn.Linear(50, 50)
    x = torch.randn(8, 50)
    params = list(model.parameters())
    before = [param.detach().clone() for param in params]
    sam = SAM(interval=1)
    addresses = set()
    for step in range(3):
        sam.gradient(make_closure(params, lambda: model(x).square().mean()), params, make_now(step))
        addresses.add(tuple(copy.data_ptr() for copy in sam._copy))
    assert is_identical(params, before)
    assert len(addresses) == 1


class StepState(NamedTuple):
    loss: float
    lr: float
    scale: float  # loss scale, for float16
    model: dict[str, Tensor]  # weights and statistics, without the BatchNorm batch counter
    momenta: list[Tensor]
    methods: dict[str, Tensor]


def train_run(run: Run, bad: int) -> list[StepState]:
    """Train a run to its end; the features of forward pass number `bad` (from 1) are infinite."""
    passes, states = [], []

    def spoil(_: nn.Module, inputs: tuple[Tensor], output: Tensor) -> Tensor:
        passes.append(inputs)
        return output * torch.inf if len(passes) == bad else output

    def note(_: int, losses: Tensor) -> None:
        state = run.model.state_dict().items()
        after = StepState(
            losses.mean().item(),
            run.optimizer.param_groups[0]["lr"],
            run.precision.scaler.get_scale(),
            {name: tensor.clone() for name, tensor in state if tensor.is_floating_point()},
            [state["momentum_buffer"].clone() for state in run.optimizer.state.values()],
            deepcopy(run.methods.state_dict()),
        )
        states.append(after)

    reporter = Mock(spec=StepReporter, **{"is_stop_requested.return_value": False})
    reporter.step.side_effect = note
    run.model.conv1.register_forward_hook(spoil)
    # no gradient of a small run overflows at this loss scale
    run.precision.load_state_dict(run.precision.state_dict() | {"scale": 1024.0})
    train(run, reporter)
    return states


@pytest.mark.parametrize("bad_pass", [1, 2])
def test_float16_overflow_in_either_pass_skips_the_step(bad_pass, make_run):
    run = make_run(
        "max_duration=5ba precision.dtype=fp16 batch.global_size=4 batch.bn_size=4 "
        "data.train_size=16 data.eval_resize=16 data.eval_size=16 methods.sam.interval=1 "
        "methods.ema.half_life=2ba methods.ema.update_interval=2ba"
    )
    states = train_run(run, bad=6 + bad_pass)  # a forward pass of the fourth step
    before, skipped, last = states[2:]
    assert [state.lr for state in states] == [run.plan.lr_at(step) for step in range(5)]
    assert [state.scale for state in states] == [before.scale] * 3 + [before.scale / 2] * 2
    assert all(map(torch.equal, skipped.momenta, before.momenta))
    assert any(momentum.any() for momentum in before.momenta)
    for name, tensor in before.model.items():
        old = before.methods[f"ema.{name}"]
        new = skipped.methods[f"ema.{name}"]
        assert torch.equal(skipped.model[name], tensor)
        assert torch.allclose(new, (old + tensor) / 2)
    assert not torch.equal(skipped.methods["ema.conv1.weight"], before.methods["ema.conv1.weight"])
    assert math.isfinite(skipped.loss) == (bad_pass == 2)  # the loss comes from the first pass
    for name in ("conv1.weight", "bn1.running_mean"):
        assert not torch.equal(last.model[name], before.model[name])
    assert all(tensor.isfinite().all() for tensor in (*last.model.values(), *last.momenta))


def test_sam_with_zero_gradient_leaves_weights_unchanged():
    w = nn.Parameter(torch.tensor([1.0]))
    SAM(interval=1).gradient(make_closure([w], lambda: (w - 1).square().sum()), [w], make_now())
    assert torch.equal(w.grad, torch.zeros(1))
    assert torch.equal(w, torch.ones(1))
