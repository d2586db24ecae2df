"""Turn uint8 pixels into the images of a step in one pass: choose rows and columns, normalise, mix pairs."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

import numpy as np
import torch
from torch import Tensor

from resnet_recipes.ops.host import send
from resnet_recipes.ops.library import nhwc, register


def plain(
    pixels: Tensor, norm: Tensor, lines: Tensor | None, height: int, width: int, share: float, dtype: torch.dtype,
) -> Tensor:
    """Turn uint8 [N, 3, H, W] into channels_last [N, 3, height, width] in plain torch, computing in float32.

    `lines`, int32, lists the indices of `height` rows and `width` columns, followed, if images are mixed, by the index
    of each image's partner, [N]; `share` is the partner's weight. None uses every pixel. `norm` is [2, 3]: an image is
    `norm[0] + pixel * norm[1]`.
    """
    images, partners = nhwc(pixels).permute(0, 2, 3, 1), ()
    if lines is not None:
        rows, columns, partners = lines.split([height, width, len(lines) - height - width])
        images = images.index_select(1, rows).index_select(2, columns)
    images = torch.addcmul(norm[0], images, norm[1])
    if len(partners):
        images = images.lerp(images.index_select(0, partners), share)
    return images.to(dtype).permute(0, 3, 1, 2)


def fused(
    pixels: Tensor, norm: Tensor, lines: Tensor | None, height: int, width: int, share: float, dtype: torch.dtype,
) -> Tensor:
    """Do the same in one launch that reads only the pixels it needs and rounds once."""
    return torch.ops.resnet_recipes.images.default(pixels, norm, lines, height, width, share, dtype)


def samples(generator: torch.Generator, dtype: torch.dtype) -> Iterator[tuple[list[Tensor], list[object]]]:
    """Yield small arguments that reach every kernel: all pixels, some lines, pairs; narrow and wide rows."""
    device, norm = generator.device, torch.tensor([[-2.0, -1.9, -1.8], [0.017, 0.018, 0.019]], device=generator.device)
    pixels = torch.randint(256, (3, 5, 400, 3), generator=generator, device=device, dtype=torch.uint8)
    rows, columns = torch.arange(0, 5, 2, device=device), torch.arange(1, 400, 3, device=device)
    selected, partners = torch.cat([rows, columns]).int(), torch.tensor([2, 0, 1], device=device, dtype=torch.int32)
    for lines, height, width in ((None, 5, 400), (selected, 3, 133), (torch.cat([selected, partners]), 3, 133)):
        yield [], [pixels.permute(0, 3, 1, 2), norm, lines, height, width, 0.3, dtype]


@dataclass(frozen=True)
class Draft:
    """Images still to be made: methods choose pixels and partners, then one pass makes the images."""

    pixels: Tensor                      # uint8 [N, 3, H, W]
    norm: Tensor                        # float32 [2, 3]: shift and scale of each channel
    dtype: torch.dtype                  # of the images
    operation: Callable[..., Tensor] = plain
    rows: np.ndarray | None = None      # indices; None: all
    columns: np.ndarray | None = None
    partners: np.ndarray | None = None  # [N], index of the image that each is mixed with; None: not mixed
    share: float = 0.0                  # weight of the partner

    @property
    def shape(self) -> torch.Size:
        """The shape of the images, [N, 3, height, width]."""
        sides = (side if lines is None else len(lines)
                 for side, lines in zip(self.pixels.shape[2:], (self.rows, self.columns), strict=True))
        return torch.Size((*self.pixels.shape[:2], *sides))

    def made(self) -> Tensor:
        """Return the images, channels_last."""
        (height, width), lines = self.shape[2:], None
        if self.rows is not None or self.columns is not None or self.partners is not None:
            rows, columns = (np.arange(side) if lines is None else lines
                             for side, lines in ((height, self.rows), (width, self.columns)))
            drawn = np.concatenate([rows, columns, *([] if self.partners is None else [self.partners])])
            lines = send(drawn.astype(np.int32), self.pixels.device)
        return self.operation(self.pixels, self.norm, lines, height, width, self.share, self.dtype)


def select(images: Tensor | Draft, rows: np.ndarray, columns: np.ndarray) -> Tensor | Draft:
    """Return [N, 3, H, W] images reduced to these rows and columns, still channels_last."""
    if isinstance(images, Draft):
        rows, columns = (chosen if lines is None else lines[chosen]
                         for lines, chosen in ((images.rows, rows), (images.columns, columns)))
        return replace(images, rows=rows, columns=columns)
    # Indexing the NHWC view keeps channels_last memory; index_select on NCHW dimensions would not.
    rows, columns = send(rows, images.device), send(columns, images.device)
    return images.permute(0, 2, 3, 1).index_select(1, rows).index_select(2, columns).permute(0, 3, 1, 2)


def mix(images: Tensor | Draft, partners: np.ndarray, share: float) -> Tensor | Draft:
    """Return each image mixed with its partner, the image at index `partners[n]`, which has weight `share`."""
    if isinstance(images, Draft) and images.partners is None:
        return replace(images, partners=partners, share=share)
    images = made(images)
    return images.lerp(images[send(partners, images.device)], share)


def made(images: Tensor | Draft) -> Tensor:
    """Return the finished images, float32."""
    return replace(images, dtype=torch.float32).made() if isinstance(images, Draft) else images


def _forward_cuda(
    pixels: Tensor, norm: Tensor, lines: Tensor | None, height: int, width: int, share: float, dtype: torch.dtype,
) -> Tensor:
    from resnet_recipes.ops.kernels import images as kernels
    return kernels.forward(nhwc(pixels), norm, lines, height, width, share, dtype)


def _fake(pixels: Tensor, norm: Tensor, lines: Tensor | None, height: int, width: int, share: float,
          dtype: torch.dtype) -> Tensor:
    return nhwc(pixels.new_empty(len(pixels), 3, height, width, dtype=dtype))


register("images(Tensor pixels, Tensor norm, Tensor? lines, SymInt height, SymInt width, float share, ScalarType dtype)"
         " -> Tensor", cpu=plain, cuda=_forward_cuda, fake=_fake)
