"""RandAugment on batches of images, in plain torch on their device, with Pillow's results.

Every operation takes uint8 pixels [M, H, W, 3] and one value for each image, float32 [M], and
returns new uint8 pixels. Comparisons and selections are avoided: plain arithmetic is ten times as
fast on a CPU and no slower on a GPU.
"""

from collections.abc import Callable
from functools import lru_cache

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from resnet_recipes.methods.host import send

PixelOp = Callable[[Tensor, Tensor], Tensor]


def posterize(pixels: Tensor, bits: Tensor) -> Tensor:
    """Keep the `bits` most significant bits of every value."""
    return pixels & (255 << (8 - bits.to(torch.int32)) & 255).to(torch.uint8).view(-1, 1, 1, 1)


def solarize(pixels: Tensor, threshold: Tensor) -> Tensor:
    """Invert values of at least `threshold`."""
    below = (
        pixels.to(torch.int16)
        .sub_(threshold.to(torch.int16).view(-1, 1, 1, 1))
        .bitwise_right_shift_(8)
    )
    # `below` was -1 below the threshold, else 0
    return below.bitwise_not_().to(torch.uint8).bitwise_xor_(pixels)


def autocontrast(pixels: Tensor, _: Tensor) -> Tensor:
    """Stretch each channel so that its darkest value is 0 and its lightest 255."""
    rows = pixels.flatten(2)
    low = rows.amin(1).unflatten(1, (-1, 3)).amin(1).float()
    high = rows.amax(1).unflatten(1, (-1, 3)).amax(1).float()
    flat = low == high
    scale = torch.where(flat, 1, 255 / (high - low))
    # 1e-3 is less than the gap between two exact results and more than float32's error, so
    # truncation is exact.
    offset = 1e-3 - torch.where(flat, 0, low) * scale
    stretched = rows * _by_column(scale, pixels)
    return _uint8(stretched.add_(_by_column(offset, pixels))).view_as(pixels)


def equalize(pixels: Tensor, _: Tensor) -> Tensor:
    """Equalise the histogram of each channel with Pillow's integer arithmetic."""
    images, side = len(pixels), pixels.shape[1] * pixels.shape[2]
    bins = torch.arange(0, images * 768, 256, device=pixels.device, dtype=torch.int32)
    cells = (pixels.flatten(2) + _by_column(bins.view(images, 3), pixels)).flatten()
    counts = _counts(cells, images * 768).view(images, 3, 256)
    last = counts.gather(2, 255 - (counts.flip(2) > 0).int().argmax(2, keepdim=True))
    step = (side - last) // 255
    before = counts.cumsum(2) - counts
    table = ((step // 2 + before) // step.clamp(min=1)).clamp(max=255)
    table = torch.where(step > 0, table, torch.arange(256, device=pixels.device)).to(torch.uint8)
    return table.flatten().index_select(0, cells).view_as(pixels)


def color(pixels: Tensor, factor: Tensor) -> Tensor:
    """Scale the difference from the greyscale image by `factor`."""
    values = pixels.float()
    return _blend(_grey(values), values, factor.view(-1, 1, 1, 1))


def contrast(pixels: Tensor, factor: Tensor) -> Tensor:
    """Scale the difference from the image's mean grey by `factor`."""
    values = pixels.float()
    mean = (
        _grey(values).mean((1, 2, 3), keepdim=True, dtype=torch.float64).add_(0.5).floor_().float()
    )
    return _blend(mean, values, factor.view(-1, 1, 1, 1))


def brightness(pixels: Tensor, factor: Tensor) -> Tensor:
    """Multiply by `factor`."""
    return _uint8((pixels * factor.view(-1, 1, 1, 1)).clamp_(0, 255))


def sharpness(pixels: Tensor, factor: Tensor) -> Tensor:
    """Scale the difference from the smoothed image by `factor`; border pixels are unchanged."""
    lines = pixels.flatten(2).to(torch.int16)  # the next pixel is 3 values further on
    inner = lines[:, 1:-1]
    total = (lines[:, :-2] + inner).add_(lines[:, 2:])
    total = (
        (total[..., :-6] + total[..., 3:-3]).add_(total[..., 6:]).add_(inner[..., 3:-3], alpha=4)
    )
    sharp = pixels.clone()
    smooth, centre = total.float().mul_(1 / 13).round_(), inner[..., 3:-3].float()
    sharp.flatten(2)[:, 1:-1, 3:-3] = _blend(smooth, centre, factor.view(-1, 1, 1))
    return sharp


def shear_x(pixels: Tensor, slope: Tensor) -> Tensor:
    """Shift row y by `slope * (y + 1/2)` pixels with linear interpolation; black outside."""
    rows = torch.arange(pixels.shape[1], device=pixels.device) + 0.5
    whole, part = _split(slope.view(-1, 1) * rows)
    late = (part >= 0.5).to(torch.uint8).unsqueeze(2)  # Pillow repeats a border for half a pixel
    values = pixels.flatten(2)
    between = _between(values[..., :-3], values[..., 3:], part.unsqueeze(2))
    return _windows(
        [values[..., :3] * late, between, values[..., -3:] * (1 - late)], whole + 1
    ).view_as(pixels)


def shear_y(pixels: Tensor, slope: Tensor) -> Tensor:
    """Shift column x by `slope * (x + 1/2)` pixels with linear interpolation; black outside."""
    images, height, width, _ = pixels.shape
    columns = torch.arange(width, device=pixels.device) + 0.5
    whole, part = _split(slope.view(-1, 1) * columns)
    part = part.repeat_interleave(3, dim=1).unsqueeze(1)
    late = (part >= 0.5).to(torch.uint8)
    values = pixels.flatten(2)
    black = torch.zeros_like(late)
    between = _between(values[:, :-1], values[:, 1:], part)
    lines = torch.cat(
        [black, values[:, :1] * late, between, values[:, -1:] * (1 - late), black], dim=1
    )
    line = torch.arange(2, height + 2, device=pixels.device).view(-1, 1) + whole.unsqueeze(1)
    line = line.clamp_(0, height + 2).int()
    area = width * (height + 3)
    first = torch.arange(0, images * area, area, device=pixels.device, dtype=torch.int32)
    cells = (
        line.mul_(width)
        .add_(torch.arange(width, device=pixels.device, dtype=torch.int32))
        .add_(first.view(-1, 1, 1))
    )
    return lines.view(-1, 3).index_select(0, cells.flatten()).view_as(pixels)


def translate_x(pixels: Tensor, distance: Tensor) -> Tensor:
    """Shift the image by whole pixels, left if `distance` is positive, and fill with black."""
    return _windows([pixels.flatten(2)], distance.view(-1, 1).expand(-1, pixels.shape[1])).view_as(
        pixels
    )


def translate_y(pixels: Tensor, distance: Tensor) -> Tensor:
    """Shift the image by whole pixels, up if `distance` is positive, and fill with black."""
    images, height, width, _ = pixels.shape
    padded = F.pad(pixels.flatten(2), (0, 0, 1, 1))
    row = (
        (torch.arange(1, height + 1, device=pixels.device) + distance.view(-1, 1))
        .clamp(0, height + 1)
        .int()
    )
    end = images * (height + 2)
    first = torch.arange(0, end, height + 2, device=pixels.device, dtype=torch.int32)
    row = row + first.view(-1, 1)
    return padded.view(-1, width * 3).index_select(0, row.flatten()).view_as(pixels)


def rotate(pixels: Tensor, degrees: Tensor) -> Tensor:
    """Rotate counter-clockwise about the centre with bilinear interpolation; black outside."""
    height, width = pixels.shape[1:3]
    y = torch.arange((1 - height) / 2, height / 2, device=pixels.device)
    x = torch.arange((1 - width) / 2, width / 2, device=pixels.device)
    plane = torch.complex(x.expand(height, -1), y.view(-1, 1).expand(-1, width)) * (2 / width)
    # rotation: multiply by exp(i angle)
    turn = torch.polar(torch.ones_like(degrees), torch.deg2rad(degrees))
    grid = torch.view_as_real(turn.view(-1, 1, 1) * plane)
    if height != width:
        grid[..., 1] *= width / height
    inside = ((1 - grid.abs()).mul_(1e7)).clamp_(0, 1)  # 1 up to the border, 0 beyond
    values = F.grid_sample(
        pixels.permute(0, 3, 1, 2).float(), grid, padding_mode="border", align_corners=False
    )
    return _uint8(
        values.add_(1 / 256).mul_((inside[..., 0] * inside[..., 1]).unsqueeze(1))
    ).permute(0, 2, 3, 1)


#: The operations by name; their order numbers them.
PIXEL_OPS: dict[str, PixelOp] = {
    op.__name__: op
    for op in (
        autocontrast,
        equalize,
        posterize,
        rotate,
        solarize,
        shear_x,
        shear_y,
        translate_x,
        translate_y,
        color,
        contrast,
        brightness,
        sharpness,
    )
}

#: The number of each operation.
KINDS = {name: number for number, name in enumerate(PIXEL_OPS)}


def augment(pixels: Tensor, kinds: np.ndarray, values: np.ndarray) -> Tensor:
    """Return uint8 [N, H, W, 3] pixels with operation `kinds[n]` applied to image n at `values[n]`.

    About 220 launches for a batch on a GPU, whatever its size; never waits for it.
    """
    order = np.argsort(kinds, kind="stable")  # group images by operation
    counts = np.bincount(kinds, minlength=len(KINDS)).tolist()
    grouped = pixels.index_select(0, send(order, pixels.device))
    parameters = send(values[order].astype(np.float32), pixels.device)
    # small pieces stay in a CPU's cache; a GPU wants as much work at once as possible
    most = 8 if pixels.device.type == "cpu" else len(pixels)
    changed = []
    for operation, part, value in zip(
        PIXEL_OPS.values(), grouped.split(counts), parameters.split(counts), strict=True
    ):
        pieces = zip(part.split(most), value.split(most), strict=True)
        changed += [operation(*piece) for piece in pieces if len(part)]
    return torch.cat(changed, out=grouped).index_select(0, send(np.argsort(order), pixels.device))


def _grey(values: Tensor) -> Tensor:
    """Return grey levels [M, H, W, 1], rounded half up.

    The sums are integers below 2^24, so exact in float32.
    """
    return (values @ _luma(values.device)).add_(32768).div_(65536).floor_()


@lru_cache
def _luma(device: torch.device) -> Tensor:
    """Return Pillow's weights of red, green and blue, in 65536ths; [3, 1]."""
    return torch.tensor([[19595.0], [38470.0], [7471.0]]).to(device)


def _blend(degenerate: Tensor, values: Tensor, factor: Tensor) -> Tensor:
    """Return `degenerate + factor * (values - degenerate)`, clipped and truncated like Pillow.

    Overwrites `values`.
    """
    return _uint8(values.sub_(degenerate).mul_(factor).add_(degenerate).clamp_(0, 255))


def _uint8(values: Tensor) -> Tensor:
    """Truncate floats in 0..255 to uint8 by way of int16, for which CPUs have vectors."""
    return values.to(torch.int16).to(torch.uint8)


def _counts(cells: Tensor, size: int) -> Tensor:
    """Count how often each number below `size` occurs.

    `bincount` is fastest on a CPU but makes a GPU synchronise.
    """
    if cells.device.type == "cpu":
        return torch.bincount(cells, minlength=size)
    return cells.new_zeros(size).index_add_(0, cells, cells.new_ones(1).expand(len(cells)))


def _by_column(by_channel: Tensor, pixels: Tensor) -> Tensor:
    """Repeat [M, 3] along rows of interleaved pixels: [M, 1, W * 3]."""
    return by_channel.view(-1, 1, 3).repeat(1, 1, pixels.shape[2])


def _split(distance: Tensor) -> tuple[Tensor, Tensor]:
    """Split a distance into whole pixels and a remainder in [0, 1)."""
    whole = distance.floor()
    return whole, distance - whole


def _between(here: Tensor, there: Tensor, part: Tensor) -> Tensor:
    """Interpolate linearly, uint8, `part` of the way from `here` to `there`.

    In steps of 1/128 the products fit into int16; the result is within one grey level of floating
    point's.
    """
    part, here = (part * 128).round_().to(torch.int16), here.to(torch.int16)
    return (there - here).mul_(part).bitwise_right_shift_(7).add_(here).to(torch.uint8)


def _windows(pieces: list[Tensor], start: Tensor) -> Tensor:
    """Join `pieces` [M, H, ...] into rows and cut W pixels out of each from `start` [M, H] on."""
    images, height = start.shape
    length = sum(piece.shape[2] for piece in pieces)
    width = length if len(pieces) == 1 else length - 3
    black = pieces[0].new_zeros(()).expand(images, height, width + 3)
    rows = torch.cat([black, *pieces, black], dim=2)
    windows = rows.flatten().unfold(0, width, 3)  # a view of every window of W pixels
    apart = rows.shape[2] // 3
    first = torch.arange(0, images * height * apart, apart, device=rows.device)
    start = (start + width // 3 + 1).clamp(0, (rows.shape[2] - width) // 3).long()
    return windows.index_select(0, first + start.flatten())
