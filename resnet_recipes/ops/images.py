"""From uint8 pixels to the images of a step: rows and columns chosen, normalised, mixed in pairs, in one pass."""

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
    """Make channels_last [N, 3, height, width] of uint8 [N, 3, H, W] with torch's own operations, in float32 inside.

    `lines`, int32, has the indices of `height` rows and `width` columns and, if images are mixed, [N] of the partner of
    each, of which it takes `share`; None takes all pixels. `norm` is [2, 3]: `norm[0] + pixel * norm[1]` is the image.
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
    """Do the same in one launch that reads only pixels that are used, and rounds once."""
    return torch.ops.resnet_recipes.images.default(pixels, norm, lines, height, width, share, dtype)


def samples(generator: torch.Generator, dtype: torch.dtype) -> Iterator[tuple[list[Tensor], list[object]]]:
    """Yield small arguments that reach every kernel: all pixels, some lines, pairs; rows of one part and of several."""
    device, norm = generator.device, torch.tensor([[-2.0, -1.9, -1.8], [0.017, 0.018, 0.019]], device=generator.device)
    pixels = torch.randint(256, (3, 5, 400, 3), generator=generator, device=device, dtype=torch.uint8)
    rows, columns = torch.arange(0, 5, 2, device=device), torch.arange(1, 400, 3, device=device)
    selected, partners = torch.cat([rows, columns]).int(), torch.tensor([2, 0, 1], device=device, dtype=torch.int32)
    for lines, height, width in ((None, 5, 400), (selected, 3, 133), (torch.cat([selected, partners]), 3, 133)):
        yield [], [pixels.permute(0, 3, 1, 2), norm, lines, height, width, 0.3, dtype]


@dataclass(frozen=True)
class Draft:
    """Images that are yet to be made, in one pass: methods choose pixels and partners, and nothing is moved before."""

    pixels: Tensor                      # uint8 [N, 3, H, W]
    norm: Tensor                        # float32 [2, 3]: shift and scale of the channels
    dtype: torch.dtype                  # of the images
    operation: Callable[..., Tensor] = plain
    rows: np.ndarray | None = None      # indices; None: all
    columns: np.ndarray | None = None
    partners: np.ndarray | None = None  # [N], the image that each is mixed with; None: not mixed
    share: float = 0.0                  # of the partner

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
    """Return [N, 3, H, W] images with these rows and columns only, channels_last as before."""
    if isinstance(images, Draft):
        rows, columns = (chosen if lines is None else lines[chosen]
                         for lines, chosen in ((images.rows, rows), (images.columns, columns)))
        return replace(images, rows=rows, columns=columns)
    # Indexing the NHWC view keeps channels_last memory; index_select on NCHW dimensions would not.
    rows, columns = send(rows, images.device), send(columns, images.device)
    return images.permute(0, 2, 3, 1).index_select(1, rows).index_select(2, columns).permute(0, 3, 1, 2)


def mix(images: Tensor | Draft, partners: np.ndarray, share: float) -> Tensor | Draft:
    """Return images of which `share` is that of their partner, the image at this index [N]."""
    if isinstance(images, Draft) and images.partners is None:
        return replace(images, partners=partners, share=share)
    images = made(images)
    return images.lerp(images[send(partners, images.device)], share)


def made(images: Tensor | Draft) -> Tensor:
    """Return the images themselves, float32."""
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
