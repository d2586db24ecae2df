"""Apply one RandAugment operation, as defined in `pixel_ops`, to each image of a batch."""

from collections.abc import Iterator

import numpy as np
import torch
from torch import Tensor

from resnet_recipes.ops.host import send
from resnet_recipes.ops.library import register
from resnet_recipes.ops.pixel_ops import PIXEL_OPS

#: Index of each operation, by name.
KINDS = {name: number for number, name in enumerate(PIXEL_OPS)}

#: Largest allowed difference between results, relative to their norm: a rotated pixel may be off by
#: one grey level.
TOLERANCE = 1e-3


def plain(pixels: Tensor, kinds: np.ndarray, values: np.ndarray) -> Tensor:
    """Return uint8 [N, H, W, 3] pixels with operation `kinds[n]` applied to image n at `values[n]`, in plain torch."""
    order = np.argsort(kinds, kind="stable")  # group images by operation
    counts = np.bincount(kinds, minlength=len(KINDS)).tolist()
    grouped = pixels.index_select(0, send(order, pixels.device))
    parameters = send(values[order].astype(np.float32), pixels.device)
    # Small pieces keep a CPU's intermediate results in cache; a GPU wants as much work at once as
    # possible.
    most = 8 if pixels.device.type == "cpu" else len(pixels)
    changed = []
    for operation, part, value in zip(
        PIXEL_OPS.values(), grouped.split(counts), parameters.split(counts), strict=True
    ):
        changed += [
            operation(*piece)
            for piece in zip(part.split(most), value.split(most), strict=True)
            if len(part)
        ]
    return torch.cat(changed, out=grouped).index_select(0, send(np.argsort(order), pixels.device))


def fused(pixels: Tensor, kinds: np.ndarray, values: np.ndarray) -> Tensor:
    """Do the same in two launches: one builds lookup tables for grey-level operations, one visits every pixel once."""
    drawn = np.stack([kinds, values]).astype(np.float32)
    return torch.ops.resnet_recipes.augment.default(pixels, send(drawn, pixels.device))


def samples(
    generator: torch.Generator, dtype: torch.dtype
) -> Iterator[tuple[list[Tensor], list[object]]]:
    """Yield images with noise on a gradient, one for each operation; `dtype` is ignored."""
    count, device = len(KINDS), generator.device
    ramp = torch.arange(5, device=device).view(5, 1, 1) * 40
    grain = torch.randint(60, (count, 5, 12, 3), generator=generator, device=device)
    values = {
        "posterize": 3,
        "rotate": -17,
        "solarize": 100,
        "shear_x": 0.21,
        "shear_y": -0.13,
        "translate_x": -3,
        "translate_y": 5,
    }
    drawn = np.array([values.get(name, 1.7) for name in KINDS])
    yield [], [(ramp + grain).to(torch.uint8), np.arange(count), drawn]


def _plain(pixels: Tensor, drawn: Tensor) -> Tensor:
    return plain(pixels, drawn[0].numpy().astype(np.int64), drawn[1].numpy())


def _forward_cuda(pixels: Tensor, drawn: Tensor) -> Tensor:
    from resnet_recipes.ops.kernels import augment as kernels

    return kernels.forward(pixels.contiguous(), drawn)


register(
    "augment(Tensor pixels, Tensor drawn) -> Tensor",
    cpu=_plain,
    cuda=_forward_cuda,
    fake=lambda pixels, _: torch.empty_like(pixels, memory_format=torch.contiguous_format),
)
