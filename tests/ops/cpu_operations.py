"""The fused operations in plain torch, registered for CPUs, and the blur's definition."""

import pytest
import torch
import torch._dynamo.testing
import torch.nn.functional as F
from torch import Tensor

from resnet_recipes.ops import blur
from resnet_recipes.ops.batch_norm import _split_arguments, apply_epilogue
from resnet_recipes.ops.library import to_nhwc
from resnet_recipes.ops.norm import SavedTensors

each_stride = pytest.mark.parametrize("stride", [1, 2])
each_size = pytest.mark.parametrize("size", [(5, 3), (4, 6), (1, 1), (2, 1)])


def normalize(x: Tensor, *rest) -> tuple[Tensor, Tensor]:
    """Compute the fused BatchNorm; return its output and the batch's moments."""
    (weight, bias, mean, var, tracked, momentum, eps), epilogue = _split_arguments(rest)
    tracked.add_(1)
    z, *moments = torch.native_batch_norm(to_nhwc(x), weight, bias, mean, var, True, momentum, eps)
    return apply_epilogue(z, epilogue), torch.stack(moments)


def normalize_backward(g: Tensor, other: Tensor | None, *rest) -> tuple[Tensor, Tensor, Tensor]:
    """Return the gradients of the input, of the residual and of the parameters."""
    x, z, keep, weight, bias, moments, relu = SavedTensors(*rest)
    mean, rstd = moments
    g = g if other is None else g + other
    if relu:
        scale = (weight * rstd).view(-1, 1, 1)
        output = (x - mean.view(-1, 1, 1)) * scale + bias.view(-1, 1, 1) if z is None else z
        g = torch.where(output <= 0, 0, g)
    g_norm = g if keep is None else g * keep.to(g.dtype).view(-1, 1, 1, 1)
    dx, *sums = torch.ops.aten.native_batch_norm_backward(
        g_norm, x, weight, None, None, mean, rstd, True, 0.0, [True, True, True]
    )
    return to_nhwc(dx), g.new_empty(0) if z is None else g.clone(), torch.stack(sums)


def smooth(x: Tensor, stride: int) -> Tensor:
    """Blur channels_last images."""
    return blur.unfused(to_nhwc(x), stride)


def smooth_backward(g: Tensor, stride: int, height: int, width: int) -> Tensor:
    """Return the input gradient: a transposed convolution, cropped or extended to size."""
    output_padding = [
        size - 1 - (out - 1) * stride
        for size, out in zip((height, width), g.shape[2:], strict=True)
    ]
    return F.conv_transpose2d(
        to_nhwc(g), blur._make_kernel(g), None, stride, 1, output_padding, g.shape[1]
    )


def pool(x: Tensor, stride: int) -> tuple[Tensor, Tensor]:
    """Return the maxima of 3x3 windows, and the place 0 to 8 of each in its window."""
    y, indices = F.max_pool2d(to_nhwc(x), 3, stride, 1, return_indices=True)
    rows, columns = (torch.arange(size, device=x.device) * stride for size in y.shape[2:])
    down = indices // x.shape[3] - rows.view(-1, 1) + 1
    right = indices % x.shape[3] - columns + 1
    return y, to_nhwc((3 * down + right).to(torch.uint8))


def pool_backward(g: Tensor, places: Tensor, stride: int, height: int, width: int) -> Tensor:
    """Add each gradient to the place of its maximum."""
    dx = to_nhwc(g.new_zeros(*g.shape[:2], height + 2, width + 2))
    tall, wide = (stride * (size - 1) + 1 for size in g.shape[2:])
    for place in range(9):
        down, right = divmod(place, 3)
        windows = dx[..., down : down + tall : stride, right : right + wide : stride]
        windows += torch.where(places == place, g, 0)
    return to_nhwc(dx[..., 1 : height + 1, 1 : width + 1])


_library = torch.library.Library("resnet_recipes", "IMPL")
for _name, _function in {
    "batch_norm": normalize,
    "batch_norm_backward": normalize_backward,
    "blur": smooth,
    "blur_backward": smooth_backward,
    "max_pool": pool,
    "max_pool_backward": pool_backward,
}.items():
    _library.impl(_name, _function, "CPU")


def blur_by_definition(x: Tensor, stride: int = 1) -> Tensor:
    """Blur by definition: a weighted sum of nine shifted maps."""
    height, width, padded = *x.shape[2:], F.pad(x, (1, 1, 1, 1))
    blurred = sum(
        (1, 2, 1)[i] * (1, 2, 1)[j] / 16 * padded[..., i : i + height, j : j + width]
        for i in range(3)
        for j in range(3)
    )
    return blurred[..., ::stride, ::stride]
