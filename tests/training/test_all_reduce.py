"""The all-reduce averages gradients over ranks, by bucket, during the backward pass."""

import pytest
import torch
import torch.distributed as dist
from torch import nn

from resnet_recipes.jobs.ranks.rank import RankProcess
from resnet_recipes.training import all_reduce, distributed
from tests.shared.checks import is_identical


def make_mixed_layout_network(seed: int = 0) -> nn.Module:
    """Return a small network with weights in both memory formats."""
    torch.manual_seed(seed)
    layers = nn.Conv2d(3, 4, 3), nn.Conv2d(4, 8, 3), nn.Flatten(), nn.Linear(8 * 16, 5)
    return nn.Sequential(*layers).to(memory_format=torch.channels_last)


def compute_loss(model: nn.Module, rank: int) -> torch.Tensor:
    generator = torch.Generator().manual_seed(rank)
    return model(torch.randn(2, 3, 8, 8, generator=generator)).square().mean()


def average_gradients(process: RankProcess, compress: bool) -> dict[str, float]:
    """Average gradients of small buckets over the ranks.

    Returns the error relative to the mean that this function computes.
    """
    all_reduce.BUCKET_BYTES = 600
    rank = distributed.read_rank("cpu", process.launch.store_path)
    distributed.join_group(rank)
    model = make_mixed_layout_network(seed=rank.rank)
    backward_ended = []
    sent_before = []
    averager = all_reduce.AllReduce(model, compress)
    send = all_reduce._Bucket.send
    all_reduce._Bucket.send = lambda bucket: (sent_before.append(not backward_ended), send(bucket))
    expected = make_mixed_layout_network()
    for each in range(rank.world_size):
        (compute_loss(expected, each) / rank.world_size).backward()
    with averager.average(False):
        compute_loss(model, rank.rank).backward()
    results = {"local": sum(float(param.grad.norm()) for param in model.parameters())}
    with averager.average(True):
        pass  # gradients without a backward pass in this context
    results["without backward"] = compute_error(model, expected)
    model.zero_grad(set_to_none=True)
    sent_before.clear()
    with averager.average(True):
        compute_loss(model, rank.rank).backward()
        backward_ended.append(True)
    grads = [param.grad for param in model.parameters()]
    results |= {
        "during backward": compute_error(model, expected),
        "early": sum(sent_before),
        "buckets": len(averager._buckets),
        "rounded": all(torch.equal(grad, grad.bfloat16().float()) for grad in grads),
    }
    model.zero_grad(set_to_none=True)
    with averager.average(True):
        (model[0](torch.ones(2, 3, 8, 8)).sum() * rank.rank).backward()
    distributed.leave_group()
    return results | {
        "unused": float(sum(param.grad.abs().sum() for param in model[1:].parameters())),
        "used": float(model[0].bias.grad.sum()),
        "formats": all(param.grad.stride() == param.stride() for param in model.parameters()),
    }


def compute_error(model: nn.Module, expected: nn.Module) -> float:
    """Return the distance between gradients and expected gradients, as a fraction of their norm."""
    actual, target = (
        torch.cat([param.grad.flatten() for param in network.parameters()])
        for network in (model, expected)
    )
    return float((actual - target).norm() / target.norm())


@pytest.mark.slow
@pytest.mark.parametrize(("compress", "allowed"), [(False, 1e-6), (True, 2**-8)])
def test_gradients_are_mean_over_ranks(compress, allowed, launcher, tmp_path):
    first, *others = launcher.call(tmp_path, 3, average_gradients, compress=compress)
    assert first["without backward"] < allowed
    assert first["during backward"] < allowed
    assert first["formats"]
    assert first["rounded"] == compress
    assert first["early"] == first["buckets"] == 5
    # unused layer: the loss does not depend on it; first layer: 2 * 6 * 6 values of 4 biases
    assert (first["unused"], first["used"]) == (0.0, 288.0)
    # ranks keep their own gradients if averaging is off
    assert len({result["local"] for result in (first, *others)}) == 3


def test_bucket_holds_up_to_25_mebibytes():
    sizes = [20, 5, 1, 30, 24]
    params = [nn.Parameter(torch.empty(size << 18, device="meta")) for size in sizes]
    buckets = [
        [param.nbytes >> 20 for param in group] for group in all_reduce._group_params(params)
    ]
    assert buckets == [[20, 5], [1], [30], [24]]


def test_single_process_gradients_are_unchanged():
    assert not dist.is_initialized()
    model = make_mixed_layout_network()
    with all_reduce.AllReduce(model).average(True):
        compute_loss(model, 0).backward()
    gradients = [param.grad.clone() for param in model.parameters()]
    model.zero_grad()
    compute_loss(model, 0).backward()
    assert is_identical(gradients, [param.grad for param in model.parameters()])
