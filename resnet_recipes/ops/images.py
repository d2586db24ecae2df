"""Turn uint8 pixels into the images of a step in one pass: choose rows and columns, normalise, resize, mix, pad."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from itertools import product

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from resnet_recipes.ops.host import send
from resnet_recipes.ops.library import nhwc, register


def plain(
    pixels: Tensor,
    norm: Tensor,
    lines: Tensor | None,
    chosen: tuple[int, int],
    size: tuple[int, int],
    share: float,
    dtype: torch.dtype,
    channels: int,
) -> Tensor:
    """Turn uint8 [N, 3, H, W] into channels_last [N, channels, *size] in plain torch, computing in float32.

    `lines`, int32, lists the indices of `chosen[0]` rows and `chosen[1]` columns, followed, if
    images are mixed, by the index of each image's partner, [N]; `share` is the partner's weight.
    None uses every pixel, and `chosen` is then (H, W). `norm` is [2, 3]: an image is `norm[0] +
    pixel * norm[1]`. If `size` differs from `chosen`, the chosen pixels are resized bilinearly,
    without antialiasing. Channels after the third are zero.
    """
    images, partners = nhwc(pixels).permute(0, 2, 3, 1), ()
    if lines is not None:
        rows, columns, partners = lines.split([*chosen, len(lines) - sum(chosen)])
        images = images.index_select(1, rows).index_select(2, columns)
    images = torch.addcmul(norm[0], images, norm[1]).permute(0, 3, 1, 2)
    if chosen != size:
        images = F.interpolate(images, size, mode="bilinear")
    if len(partners):
        images = images.lerp(images.index_select(0, partners), share)
    return pad(images.to(dtype), channels)


def fused(
    pixels: Tensor,
    norm: Tensor,
    lines: Tensor | None,
    chosen: tuple[int, int],
    size: tuple[int, int],
    share: float,
    dtype: torch.dtype,
    channels: int,
) -> Tensor:
    """Do the same in one launch that reads only the pixels it needs and rounds once."""
    return torch.ops.resnet_recipes.images.default(
        pixels, norm, lines, chosen, size, share, dtype, channels
    )


def pad(x: Tensor, channels: int) -> Tensor:
    """Return [N, C, H, W] with zeros for channels up to `channels`, in the same memory format."""
    return F.pad(x, (0, 0, 0, 0, 0, channels - x.shape[1])) if channels > x.shape[1] else x


def samples(
    generator: torch.Generator, dtype: torch.dtype
) -> Iterator[tuple[list[Tensor], list[object]]]:
    """Yield small arguments that reach every kernel: all pixels, some lines, pairs; narrow and wide rows."""
    device, norm = (
        generator.device,
        torch.tensor([[-2.0, -1.9, -1.8], [0.017, 0.018, 0.019]], device=generator.device),
    )
    pixels = torch.randint(
        256, (3, 5, 400, 3), generator=generator, device=device, dtype=torch.uint8
    )
    rows, columns = torch.arange(0, 5, 2, device=device), torch.arange(1, 400, 3, device=device)
    selected, partners = (
        torch.cat([rows, columns]).int(),
        torch.tensor([2, 0, 1], device=device, dtype=torch.int32),
    )
    for lines, chosen in (
        (None, (5, 400)),
        (selected, (3, 133)),
        (torch.cat([selected, partners]), (3, 133)),
    ):
        for size, channels in product((chosen, (2, 100)), (3, 4)):
            yield [], [pixels.permute(0, 3, 1, 2), norm, lines, chosen, size, 0.3, dtype, channels]


@dataclass(frozen=True)
class Draft:
    """Images still to be made: methods choose pixels and partners, then one pass makes the images."""

    pixels: Tensor  # uint8 [N, 3, H, W]
    norm: Tensor  # float32 [2, 3]: shift and scale of each channel
    dtype: torch.dtype  # of the images
    operation: Callable[..., Tensor] = plain
    channels: int = 3  # of the images; after the third, zeros
    rows: np.ndarray | None = None  # indices; None: all
    columns: np.ndarray | None = None
    # height and width after a bilinear resize; None: not resized
    size: tuple[int, int] | None = None
    # [N], index of the image that each is mixed with; None: not mixed
    partners: np.ndarray | None = None
    share: float = 0.0  # weight of the partner

    @property
    def chosen(self) -> tuple[int, int]:
        """How many rows and columns of pixels are used."""
        height, width = (
            side if lines is None else len(lines)
            for side, lines in zip(self.pixels.shape[2:], (self.rows, self.columns), strict=True)
        )
        return height, width

    @property
    def shape(self) -> torch.Size:
        """The shape of the images, [N, channels, height, width]."""
        return torch.Size((len(self.pixels), self.channels, *(self.size or self.chosen)))

    def made(self) -> Tensor:
        """Return the images, channels_last."""
        lines = None
        if self.rows is not None or self.columns is not None or self.partners is not None:
            rows, columns = (
                np.arange(side) if lines is None else lines
                for side, lines in zip(self.chosen, (self.rows, self.columns), strict=True)
            )
            drawn = np.concatenate(
                [rows, columns, *([] if self.partners is None else [self.partners])]
            )
            lines = send(drawn.astype(np.int32), self.pixels.device)
        return self.operation(
            self.pixels,
            self.norm,
            lines,
            self.chosen,
            self.size or self.chosen,
            self.share,
            self.dtype,
            self.channels,
        )


def select(images: Tensor | Draft, rows: np.ndarray, columns: np.ndarray) -> Tensor | Draft:
    """Return [N, C, H, W] images reduced to these rows and columns, still channels_last."""
    if isinstance(images, Draft) and images.size is None:
        rows, columns = (
            chosen if lines is None else lines[chosen]
            for lines, chosen in ((images.rows, rows), (images.columns, columns))
        )
        return replace(images, rows=rows, columns=columns)
    images = made(images)
    # Indexing the NHWC view keeps channels_last memory; index_select on NCHW dimensions would not.
    rows, columns = send(rows, images.device), send(columns, images.device)
    return (
        images.permute(0, 2, 3, 1)
        .index_select(1, rows)
        .index_select(2, columns)
        .permute(0, 3, 1, 2)
    )


def resize(images: Tensor | Draft, size: tuple[int, int]) -> Tensor | Draft:
    """Return [N, C, H, W] images resized bilinearly to this height and width, without antialiasing."""
    if isinstance(images, Draft) and images.size is None:
        return replace(images, size=size)
    return F.interpolate(made(images), size, mode="bilinear")


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
    pixels: Tensor,
    norm: Tensor,
    lines: Tensor | None,
    chosen: tuple[int, int],
    size: tuple[int, int],
    share: float,
    dtype: torch.dtype,
    channels: int,
) -> Tensor:
    from resnet_recipes.ops.kernels import images as kernels

    return kernels.forward(nhwc(pixels), norm, lines, chosen, size, share, dtype, channels)


def _fake(
    pixels: Tensor,
    norm: Tensor,
    lines: Tensor | None,
    chosen: tuple[int, int],
    size: tuple[int, int],
    share: float,
    dtype: torch.dtype,
    channels: int,
) -> Tensor:
    return nhwc(pixels.new_empty(len(pixels), channels, *size, dtype=dtype))


register(
    "images(Tensor pixels, Tensor norm, Tensor? lines, SymInt[2] chosen, SymInt[2] size, "
    "float share, "
    "ScalarType dtype, int channels) -> Tensor",
    cpu=plain,
    cuda=_forward_cuda,
    fake=_fake,
)
