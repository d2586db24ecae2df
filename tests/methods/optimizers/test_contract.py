"""The contract that every optimizer must keep."""

import copy
import hashlib
from dataclasses import fields

import pytest
import torch
from torch import nn
from torch.profiler import ProfilerActivity, profile

from resnet_recipes.jobs.ranks.rank import RankProcess
from resnet_recipes.methods.card import make_card
from resnet_recipes.methods.optimizers import OPTIMIZERS
from resnet_recipes.methods.optimizers.base import POLICIES, read_scaling
from resnet_recipes.training import distributed
from resnet_recipes.training.all_reduce import AllReduce
from resnet_recipes.training.precision import Precision
from tests.methods.inputs import make_gradients, make_policy_network
from tests.shared.checks import is_identical
from tests.shared.tables import parse_rows

every_optimizer = pytest.mark.parametrize(
    "optimizer", OPTIMIZERS, ids=lambda optimizer: optimizer.name
)


#: Invalid values of each setting.
WRONG = {
    "lr": [0.0, -1.0, 1e5],
    "weight_decay": [-0.1, 1.0],
    "no_decay": ["all"],
    "clip_norm": [0.0, -1.0],
    "momentum": [-0.1, 1.0],
    "betas": [(1.0, 0.9), (0.9, -0.1)],
    "eps": [-1e-3],
    "trust_coefficient": [0.0],
}


def take_step(
    model: nn.Module, optimizer: torch.optim.Optimizer, grads: list[torch.Tensor]
) -> None:
    for p, grad in zip(model.parameters(), grads, strict=True):
        p.grad = grad.clone()
    optimizer.step()
    optimizer.zero_grad(set_to_none=True)


@every_optimizer
def test_optimizer_name_matches_file_and_card_is_complete(optimizer):
    assert optimizer.__module__.rpartition(".")[2] == optimizer.name
    card = make_card(optimizer)
    texts = (card.summary, *card.details, card.cost, card.gain, card.avoid_when)
    assert min(map(len, texts)) > 10
    assert all(setting.meaning for setting in card.settings)
    assert {"lr", "weight_decay", "no_decay", "clip_norm"} <= {
        setting.name for setting in card.settings
    }


@every_optimizer
def test_optimizer_defaults_are_valid_and_wrong_values_rejected(optimizer):
    assert list(optimizer().problems()) == []
    for item in fields(optimizer):
        for value in WRONG.get(item.name, []):
            assert item.name in [
                problem.key for problem in optimizer(**{item.name: value}).problems()
            ], f"{item.name}={value}"


@every_optimizer
def test_resumed_optimizer_matches_uninterrupted_one(optimizer):
    complete = make_policy_network()
    resumed = make_policy_network()
    ours = optimizer(lr=0.01).build(complete)
    for step, grads in enumerate(make_gradients(complete, 6)):
        take_step(complete, ours, grads)
        if step == 2:
            resumed.load_state_dict(complete.state_dict())
            theirs = optimizer(lr=0.01).build(resumed)
            theirs.load_state_dict(copy.deepcopy(ours.state_dict()))
        elif step > 2:
            take_step(resumed, theirs, grads)
    assert is_identical(complete.parameters(), resumed.parameters())


@every_optimizer
def test_state_copies_match_size_of_state(optimizer):
    model = make_policy_network()
    built = optimizer(lr=0.01).build(model)
    take_step(model, built, next(make_gradients(model, 1)))
    state_tensors = sum(
        value.numel()
        for state in built.state_dict()["state"].values()
        for value in state.values()
        if isinstance(value, torch.Tensor) and value.numel() > 1
    )
    weights = sum(p.numel() for p in model.parameters() if p.numel() > 1)
    assert state_tensors == optimizer.state_copies * weights


@every_optimizer
def test_overflow_changes_nothing_without_host_sync(optimizer):
    model = make_policy_network()
    built = optimizer(lr=0.01).build(model)
    for grads in make_gradients(model, 2):
        take_step(model, built, grads)
    before = copy.deepcopy([model.state_dict(), built.state_dict()["state"]])
    built.grad_scale = torch.tensor(8.0)
    built.found_inf = torch.tensor(1.0)
    with profile(activities=[ProfilerActivity.CPU]) as trace:
        take_step(model, built, [torch.full_like(p, float("inf")) for p in model.parameters()])
    called = {event.key for event in trace.key_averages()}
    assert not called & {"aten::_local_scalar_dense", "aten::item"}
    after = [model.state_dict(), built.state_dict()["state"]]
    torch.testing.assert_close(after, before, rtol=0, atol=0)


@every_optimizer
def test_scaler_sets_scale_and_overflow_during_step(optimizer):
    """Fused torch optimizers rely on this, but it is not a public torch API."""
    model = nn.Linear(2, 2)
    scaler = torch.amp.GradScaler("cpu", 4.0)
    scalings = []
    built = optimizer(lr=0.01).build(model)
    built.register_step_pre_hook(lambda *_: scalings.append([*map(float, read_scaling(built))]))
    for factor in (1.0, float("inf")):
        built.zero_grad()
        scaler.scale(model(torch.ones(1, 2)).sum() * factor).backward()
        scaler.step(built)
        scaler.update()
    assert scalings[0] == [4.0, 0.0]
    assert scalings[-1][1] > 0
    assert read_scaling(built) == (None, None)


@every_optimizer
def test_scaled_gradient_is_unscaled(optimizer):
    unscaled = make_policy_network()
    scaled = make_policy_network()
    ours = optimizer(lr=0.01).build(unscaled)
    theirs = optimizer(lr=0.01).build(scaled)
    for grads in make_gradients(unscaled, 3):
        take_step(unscaled, ours, grads)
        theirs.grad_scale = torch.tensor(8.0)
        theirs.found_inf = torch.tensor(0.0)
        take_step(scaled, theirs, [8 * grad for grad in grads])
    assert is_identical(unscaled.parameters(), scaled.parameters())


def train_with_all(process: RankProcess) -> dict[str, str]:
    """Train with every optimizer on gradients that differ between ranks.

    Returns a hash of weights and state by optimizer.
    """
    rank = distributed.read_rank("cpu", process.launch.store_path)
    hashes = {}
    distributed.join_group(rank)
    for optimizer in OPTIMIZERS:
        torch.manual_seed(rank.rank)
        model = nn.Sequential(nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), nn.Linear(6, 5))
        settings = optimizer(lr=0.01)
        all_reduce = AllReduce(model)
        precision = Precision(rank.device, torch.float32, model)
        built = settings.build(model)
        for _ in range(10):
            with all_reduce.average(True):
                model(torch.randn(4, 3, 8, 8)).square().mean().backward()
            precision.step_optimizer(built, settings.clip_norm)
            built.zero_grad(set_to_none=True)
        state_tensors = [
            value for state in built.state.values() for _, value in sorted(state.items())
        ]
        tensors = [tensor.detach() for tensor in [*model.parameters(), *state_tensors]]
        assert all(tensor.isfinite().all() for tensor in tensors)
        hashes[settings.name] = hashlib.sha256(
            b"".join(tensor.numpy().tobytes() for tensor in tensors)
        ).hexdigest()
    distributed.leave_group()
    return hashes


@pytest.mark.slow
def test_ranks_keep_bit_identical_weights_and_state(launcher, tmp_path):
    first, second = launcher.call(tmp_path, 2, train_with_all)
    assert first == second
    assert first.keys() == {optimizer.name for optimizer in OPTIMIZERS}
    assert len(set(first.values())) == len(OPTIMIZERS)


@every_optimizer
def test_channels_last_weights_take_equal_steps(optimizer):
    contiguous = make_policy_network()
    other = make_policy_network().to(memory_format=torch.channels_last)
    ours = optimizer(lr=0.01).build(contiguous)
    theirs = optimizer(lr=0.01).build(other)
    for grads in make_gradients(contiguous, 3):
        take_step(contiguous, ours, grads)
        pairs = zip(other.parameters(), grads, strict=True)
        take_step(other, theirs, [torch.empty_like(p).copy_(grad) for p, grad in pairs])
    for p, q in zip(contiguous.parameters(), other.parameters(), strict=True):
        torch.testing.assert_close(p, q.contiguous(), rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize(
    ("policy", "expected"),
    parse_rows(
        """
none |
bn_in_name | bn1.bias bn1.weight
one_dimensional | bn1.bias bn1.weight downsample.1.bias downsample.1.weight fc.bias
norm_layers | bn1.bias bn1.weight downsample.1.bias downsample.1.weight
"""
    ),
)
def test_no_decay_policy_exempts_its_parameters(policy, expected):
    model = make_policy_network()
    names = {id(p): name for name, p in model.named_parameters()}
    groups = OPTIMIZERS[0](weight_decay=0.3, no_decay=policy).groups(model)
    exempt = {
        names[id(p)] for group in groups for p in group["params"] if group["weight_decay"] == 0
    }
    assert sorted(exempt) == expected.split()
    assert sum(len(group["params"]) for group in groups) == len(names)
    assert policy in POLICIES


@every_optimizer
def test_zero_weight_moves_and_frozen_weight_is_skipped(optimizer):
    model = nn.Sequential(nn.Linear(3, 3), nn.Linear(3, 2))
    nn.init.zeros_(model[1].weight)
    model[0].requires_grad_(False)
    built = optimizer(lr=0.1, weight_decay=0.01, no_decay="none").build(model)
    params = [parameter for group in built.param_groups for parameter in group["params"]]
    assert {id(parameter) for parameter in params} == {id(p) for p in model[1].parameters()}
    model[1].weight.grad = torch.ones_like(model[1].weight)
    bias = model[1].bias.clone()  # a parameter without a gradient
    built.step()
    assert (model[1].weight != 0).all()
    assert torch.equal(model[1].bias, bias)
