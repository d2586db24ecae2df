"""Gradients that torch may compute wrongly: small convolutions in bf16, padded average pools."""

from functools import partial
from typing import NamedTuple

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from resnet_recipes import backbones
from resnet_recipes.jobs.ranks.rank import RankProcess
from resnet_recipes.methods.stack import Stack
from resnet_recipes.network.build import build_network
from resnet_recipes.ops.wrong_gradients import avoid_wrong_gradients
from resnet_recipes.recipe.compose import compose
from tests.shared.tables import parse_rows, parse_settings

#: ResNets and four other families, and the smallest image size of at least 8 px that each accepts.
FAMILIES = {
    ("resnet18", ""): 8,
    ("resnet18", "small_stem"): 8,
    ("resnet50", ""): 8,
    ("torchvision:resnext50_32x4d", ""): 8,
    ("torchvision:densenet121", ""): 32,
    ("torchvision:mobilenet_v3_small", ""): 8,
    ("torchvision:efficientnet_b0", ""): 8,
}


class ConvolutionKind(NamedTuple):
    """The settings that, with the input size, select the algorithm of a convolution's gradient."""

    inputs: int  # channels, reduced to at most 31 with the same remainder modulo 16
    kernel: int
    stride: int
    padding: int
    groups: int


def list_convolutions() -> dict[ConvolutionKind, set[int]]:
    """Return the convolutions of all families, with the small input sizes and the last size."""
    sizes_by_kind: dict[ConvolutionKind, set[int]] = {}
    for (name, argument), least in FAMILIES.items():
        model = backbones.build_structure(name, 10, {argument: True} if argument else {}).eval()
        sizes: dict[nn.Module, list[int]] = {}

        def note(conv: nn.Module, inputs: tuple[Tensor], sizes=sizes) -> None:
            sizes.setdefault(conv, []).append(inputs[0].shape[-1])

        convs = [module for module in model.modules() if isinstance(module, nn.Conv2d)]
        for conv in convs:
            conv.register_forward_pre_hook(note)
        for size in (least, 64):
            model(torch.empty(1, 3, size, size, device="meta"))
        for conv in convs:
            inputs = min(conv.in_channels, 16 + conv.in_channels % 16)
            groups = inputs if conv.groups == conv.in_channels else min(conv.groups, 4)
            kind = ConvolutionKind(
                inputs, conv.kernel_size[0], conv.stride[0], conv.padding[0], groups
            )
            first, last = sizes[conv]
            sizes_by_kind.setdefault(kind, set()).update(
                (*range(first, min(first + 8, last)), last)
            )
    return sizes_by_kind


def compute_results(
    kind: ConvolutionKind, x: Tensor, weight: Tensor, dtype: torch.dtype
) -> list[Tensor]:
    """Return a convolution's output and both gradients, computed on memory full of NaN."""
    x = x.to(dtype).requires_grad_()
    weight = weight.to(dtype).requires_grad_()
    y = avoid_wrong_gradients(
        lambda x: F.conv2d(x, weight, None, kind.stride, kind.padding, groups=kind.groups)
    )(x)
    g = torch.linspace(-1, 1, y.numel(), dtype=torch.float64).bfloat16().to(dtype).view_as(y)
    del [[torch.full((1 << bits,), torch.nan) for bits in range(8, 17)]][0]
    return [y, *torch.autograd.grad(y, (x, weight), g)]


def sample_inputs(kind: ConvolutionKind, size: int) -> tuple[Tensor, Tensor]:
    """Return an input and weights with the same values in bf16 and in float64."""
    torch.manual_seed(size)
    x = torch.randn(2, kind.inputs, size, size, dtype=torch.bfloat16)
    outputs = kind.inputs if kind.groups == kind.inputs else 16
    weight = torch.randn(outputs, kind.inputs // kind.groups, kind.kernel, kind.kernel).bfloat16()
    return x, weight


def test_convolutions_have_correct_gradients_on_small_maps():
    wrong = []
    for kind, sizes in list_convolutions().items():
        for size in sizes:
            tensors = sample_inputs(kind, size)
            actual, exact = (
                compute_results(kind, *tensors, dtype) for dtype in (torch.bfloat16, torch.float64)
            )
            # bf16 rounds to 1/256; NaN is never close
            if not all(
                (rounded - value).abs().max() < value.abs().max() / 64
                for rounded, value in zip(actual, exact, strict=True)
            ):
                wrong.append((kind, size))
    assert not wrong


@pytest.mark.parametrize("size", [1, 2, 3, 4])
@pytest.mark.parametrize("stride", [1, 2, 3, (2, 1)])
@pytest.mark.parametrize("kernel", [1, 2, 3, 5, 7, (7, 1)])
def test_weights_under_padding_change_no_output_or_gradient(kernel, stride, size):
    sizes = kernel if isinstance(kernel, tuple) else (kernel, kernel)
    x = torch.randn(2, 3, size, size, dtype=torch.float64, requires_grad=True)
    weight = torch.randn(4, 3, *sizes, dtype=torch.float64, requires_grad=True)
    bias = torch.randn(4, dtype=torch.float64)
    results = []
    padding = tuple(size // 2 for size in sizes)
    plain = partial(F.conv2d, weight=weight, bias=bias, stride=stride, padding=padding)
    for forward in (plain, avoid_wrong_gradients(plain)):
        y = forward(x)
        results.append([y, *torch.autograd.grad(y.square().sum(), (x, weight))])
    for whole, trimmed in zip(*results, strict=True):
        assert torch.allclose(whole, trimmed, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize(
    ("options", "is_copied"),
    parse_rows(
        """
kernel_size=3 stride=1 padding=1 | True
kernel_size=3 stride=2 padding=[1,0] count_include_pad=false | True
kernel_size=2 padding=1 divisor_override=3 | True
kernel_size=2 divisor_override=3 | False
"""
    ),
)
def test_padded_average_pool_gets_nchw(options, is_copied):
    x = torch.randn(2, 3, 6, 5).to(memory_format=torch.channels_last).requires_grad_()
    options = parse_settings(options)
    for pool in (nn.AvgPool2d(**options), partial(F.avg_pool2d, **options)):
        theirs = pool(x)
        ours = avoid_wrong_gradients(pool)(x)
        assert torch.equal(theirs, ours)
        assert str(ours.grad_fn._saved_self.is_contiguous()) == is_copied


@pytest.mark.parametrize(
    ("name", "is_wrapped"), [("resnet18", False), ("torchvision:squeezenet1_1", True)]
)
def test_networks_except_resnets_are_wrapped_off_the_cpu(name, is_wrapped):
    recipe = compose("mild", [f"model.name={name}"], needs_data=False).recipe
    model = build_network(recipe, Stack.of(recipe.methods), 10, torch.device("meta"))
    assert ("forward" in vars(model)) == is_wrapped


def compute_gradients(process: RankProcess) -> bool:
    """Compute gradients of a network at an eighth of its usual width, and use the memory."""
    recipe = compose("small", ["model.width=0.125"], needs_data=False).recipe
    model = build_network(recipe, Stack.of(recipe.methods), 10, torch.device("cpu"))
    for _ in range(3):
        model(torch.randn(4, 3, 64, 64)).square().mean().backward()
        model.zero_grad()
        del [[torch.empty(1 << bits) for bits in range(4, 18)]][0]
    return True


def test_convolution_of_few_channels_writes_within_its_memory(launcher, tmp_path):
    assert launcher.call(tmp_path, 1, compute_gradients) == [True]  # not SIGABRT or SIGSEGV
