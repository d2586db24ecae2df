"""The kernel of gradient descent against float64."""

import pytest
import torch

from resnet_recipes.ops.kernels import sgd as kernels

#: Whole parts, a part of one, a single value.
SHAPES = (2 * kernels.VALUES,), (3, kernels.VALUES // 2 + 1), (1,)


def tensors(seed):
    """Return a random tensor of each shape."""
    generator = torch.Generator().manual_seed(seed)
    return [torch.randn(shape, generator=generator) for shape in SHAPES]


def step(momentum, nesterov, scale=None, overflow=None):
    """Take a step; return weights, gradients and momenta before it, the same after it, and the copies."""
    before = [tensors(seed) for seed in range(3)]
    weights, grads, means = ([tensor.clone() for tensor in group] for group in before)
    copies = [
        torch.full_like(weights[0], 7, dtype=torch.float16),
        weights[1],
        torch.zeros(1, dtype=torch.float16),
    ]
    scaler = [None if value is None else torch.tensor(value) for value in (scale, overflow)]
    kernels.step(
        weights,
        grads,
        means if momentum else [],
        copies,
        0.3,
        0.8,
        0.2,
        momentum,
        nesterov,
        *scaler,
    )
    return before, (weights, grads, means), copies


@pytest.mark.parametrize(("momentum", "nesterov"), [(0.9, False), (0.9, True), (0.0, False)])
@pytest.mark.parametrize("scale", [None, 4.0])
def test_a_step_matches_float64(momentum, nesterov, scale):
    before, after, copies = step(momentum, nesterov, scale, None if scale is None else 0.0)
    for i in range(len(SHAPES)):
        w, g, m = (group[i].double() for group in before)
        change = g / (scale or 1) + 0.2 * w
        m = momentum * m + change if momentum else m
        ahead = change + momentum * m if nesterov else m if momentum else change
        w = 0.8 * w - 0.3 * ahead
        for found, exact in zip(after, (w, g, m), strict=True):
            torch.testing.assert_close(found[i].double(), exact, rtol=1e-6, atol=1e-6)
        assert torch.equal(copies[i], after[0][i].to(copies[i].dtype))


def test_an_overflow_changes_nothing_but_the_copies():
    before, after, copies = step(0.9, False, 4.0, 1.0)
    assert all(
        torch.equal(a, b)
        for group, other in zip(before, after, strict=True)
        for a, b in zip(group, other, strict=True)
    )
    assert all(
        torch.equal(copy, weight.to(copy.dtype))
        for copy, weight in zip(copies, after[0], strict=True)
    )


def test_addresses_are_sent_again_only_after_a_change(monkeypatch):
    sent = []
    monkeypatch.setattr(
        kernels, "send", lambda drawn, device: sent.append(drawn) or torch.from_numpy(drawn)
    )
    weights, grads, others = ([torch.ones(11)] for _ in range(3))
    for each in (grads, grads, others, grads):
        kernels.step(weights, each, [], weights, 0.5, 1.0, 0.0, 0.0, False, None, None)
    assert sum(drawn.dtype == "int64" for drawn in sent) == 2
    assert torch.equal(weights[0], torch.full((11,), -1.0))


def test_no_number_is_compiled_into_the_kernel_that_calls_share(monkeypatch):
    passed = []
    monkeypatch.setattr(
        kernels, "launch", lambda kernel, grid, key, *args, **options: passed.append(args)
    )
    weights = [torch.ones(11)]
    kernels.step(weights, weights, weights, weights, 1, 1, 0, 1, False, None, None)
    assert [type(number) for number in passed[0][4:8]] == [float] * 4


def test_copies_of_another_dtype_at_the_same_addresses_are_written_in_it():
    weights, grads = [torch.full((11,), 3.5)], [torch.ones(11)]
    copies = [torch.zeros(11, dtype=torch.float16)]
    for dtype in (torch.float16, torch.bfloat16):
        again = [copy.view(dtype) for copy in copies]
        kernels.step(weights, grads, [], again, 0.5, 1.0, 0.0, 0.0, False, None, None)
        assert torch.equal(again[0], weights[0].to(dtype))
