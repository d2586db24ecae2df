"""One operation of RandAugment for each image of a batch, as `pixel_ops` defines them."""

from collections.abc import Iterator

import numpy as np
import torch
from torch import Tensor

from resnet_recipes.ops.host import send
from resnet_recipes.ops.library import register
from resnet_recipes.ops.pixel_ops import PIXEL_OPS

#: Numbers of the operations, by name.
KINDS = {name: number for number, name in enumerate(PIXEL_OPS)}

#: What results may differ by, as a share of their norm: rotated pixels differ by a grey level now and then.
TOLERANCE = 1e-3


def plain(pixels: Tensor, kinds: np.ndarray, values: np.ndarray) -> Tensor:
    """Return uint8 [N, H, W, 3] pixels, each image changed by operation `kinds[n]` with its value, by torch's own."""
    order = np.argsort(kinds, kind="stable")                                  # images of one operation lie side by side
    counts = np.bincount(kinds, minlength=len(KINDS)).tolist()
    grouped = pixels.index_select(0, send(order, pixels.device))
    parameters = send(values[order].astype(np.float32), pixels.device)
    # A CPU is faster while intermediate results stay in its cache; a GPU while there is much to do at once.
    most = 8 if pixels.device.type == "cpu" else len(pixels)
    changed = []
    for operation, part, value in zip(PIXEL_OPS.values(), grouped.split(counts), parameters.split(counts), strict=True):
        changed += [operation(*piece) for piece in zip(part.split(most), value.split(most), strict=True) if len(part)]
    return torch.cat(changed, out=grouped).index_select(0, send(np.argsort(order), pixels.device))


def fused(pixels: Tensor, kinds: np.ndarray, values: np.ndarray) -> Tensor:
    """Do the same in two launches: tables of the operations that map grey levels, then every pixel once."""
    drawn = np.stack([kinds, values]).astype(np.float32)
    return torch.ops.resnet_recipes.augment.default(pixels, send(drawn, pixels.device))


def samples(generator: torch.Generator, dtype: torch.dtype) -> Iterator[tuple[list[Tensor], list[object]]]:
    """Yield images with a grain and a gradient, each changed by one of the operations; `dtype` plays no part."""
    count, device = len(KINDS), generator.device
    ramp = torch.arange(5, device=device).view(5, 1, 1) * 40
    grain = torch.randint(60, (count, 5, 12, 3), generator=generator, device=device)
    values = {"posterize": 3, "rotate": -17, "solarize": 100, "shear_x": 0.21, "shear_y": -0.13, "translate_x": -3,
              "translate_y": 5}
    drawn = np.array([values.get(name, 1.7) for name in KINDS])
    yield [], [(ramp + grain).to(torch.uint8), np.arange(count), drawn]


def _plain(pixels: Tensor, drawn: Tensor) -> Tensor:
    return plain(pixels, drawn[0].numpy().astype(np.int64), drawn[1].numpy())


def _forward_cuda(pixels: Tensor, drawn: Tensor) -> Tensor:
    from resnet_recipes.ops.kernels import augment as kernels
    return kernels.forward(pixels.contiguous(), drawn)


register("augment(Tensor pixels, Tensor drawn) -> Tensor", cpu=_plain, cuda=_forward_cuda,
         fake=lambda pixels, _: torch.empty_like(pixels, memory_format=torch.contiguous_format))
