"""Triton kernels for BatchNorm with ReLU and a residual: NHWC as rows of channels, two launches per pass.

Each pass starts with sums over all rows: every program sums its share, and the last one to finish
combines the shares in a fixed order, so the result does not depend on which program was last.
"""

from functools import cache

import torch
import triton
import triton.language as tl
from torch import Tensor

from resnet_recipes.ops.kernels import blur as blurring
from resnet_recipes.ops.kernels import blurred
from resnet_recipes.ops.kernels.arrivals import arrivals, last
from resnet_recipes.ops.kernels.launch import launch
from resnet_recipes.ops.kernels.maps import rectified

#: Rows and channels of a tile; 128 threads then move 16 bytes at a time, twice.
ROWS, CHANNELS = 32, 64
OPTIONS = {"num_warps": 4, "enable_fp_fusion": True}

#: Programs that fit on a multiprocessor at once; the rows are split among exactly that many.
#: Statistics have half as many as registers allow, of twice the threads and rows: the last program
#: then has half as many shares to combine, and takes twice as many at a time. Sums take more
#: registers if images have factors or there is the gradient of a blur.
RESIDENT_STATISTICS, RESIDENT_REDUCE, RESIDENT_LARGE_REDUCE = 4, 5, 4


def fitting(warps: int, resident: int) -> dict[str, object]:
    """Return options with which `resident` programs fit on a multiprocessor, whichever Triton compiles them.

    It has 65,536 registers, and a thread gets them by eights.
    """
    return {
        "num_warps": warps,
        "maxnreg": 65536 // (32 * warps * resident) // 8 * 8,
        "enable_fp_fusion": True,
    }


STATISTICS_OPTIONS = fitting(8, RESIDENT_STATISTICS)
REDUCE_OPTIONS, LARGE_REDUCE_OPTIONS = (
    fitting(4, RESIDENT_REDUCE),
    fitting(4, RESIDENT_LARGE_REDUCE),
)


def forward(
    x: Tensor,
    weight: Tensor,
    bias: Tensor,
    residual: Tensor | None,
    keep: Tensor | None,
    running: tuple[Tensor, Tensor, Tensor],
    momentum: float,
    eps: float,
    relu: bool,
    blur: int,
) -> tuple[Tensor, Tensor | None, Tensor]:
    """Return the output for channels_last [N, C, H, W], its blur with stride 2, and [2, C].

    If `blur` is 1 the output is blurred, and only if it is 2 is there a second. [2, C] are the mean
    and 1 / standard deviation.
    """
    (n, c, h, w), is_added, is_kept = x.shape, residual is not None, keep is not None
    saved = statistics(x, running, momentum, eps)
    if blur:
        return *blurred.forward(x, residual, keep, saved, weight, bias, relu, blur), saved
    m, z, flags = n * h * w, torch.empty_like(x), (is_added, is_kept, relu)
    launch(
        _apply,
        (-(-m // ROWS), -(-c // CHANNELS), 1),
        (x.dtype, c, x.device, *flags),
        x,
        residual if is_added else x,
        keep if is_kept else saved,
        z,
        saved,
        weight,
        bias,
        m,
        c,
        h * w,
        *flags,
        ROWS,
        CHANNELS,
        **OPTIONS,
    )
    return z, None, saved


def backward(
    g: Tensor,
    other: Tensor | None,
    x: Tensor,
    z: Tensor | None,
    keep: Tensor | None,
    weight: Tensor,
    bias: Tensor,
    saved: Tensor,
    relu: bool,
    blur: int,
) -> tuple[Tensor, Tensor | None, Tensor]:
    """Return the gradients of the input, the residual, and [2, C], the weight and bias.

    `z` is the output if a residual was added, else None. `other` is the gradient of the second
    output if it was used. The blur with stride 1 is a separate launch: in the sums, each pixel
    would need nine values of its gradient.
    """
    g = blurring.forward(g, 1) if blur == 1 else g
    (n, c, h, w), is_added, is_halved = x.shape, z is not None, blur == 2
    m, columns, is_gated = n * h * w, -(-c // CHANNELS), is_added or is_halved
    resident, options = RESIDENT_REDUCE, REDUCE_OPTIONS
    if keep is not None or is_halved:
        resident, options = RESIDENT_LARGE_REDUCE, LARGE_REDUCE_OPTIONS
    blocks, rows = shares_of(m, ROWS, columns, x.device, resident)
    shares, sums = weight.new_empty(2, blocks, c), weight.new_empty(2, c)
    gated = torch.empty_like(x) if is_gated else g
    flags = other is not None, is_added, keep is not None, relu, is_halved
    launch(
        _reduce,
        (blocks, columns, 1),
        (x.dtype, c, x.device, *flags),
        g,
        g if other is None else other,
        x,
        z if is_added else x,
        saved if keep is None else keep,
        gated,
        shares,
        arrivals(x.device),
        saved,
        weight,
        bias,
        sums,
        m,
        c,
        h,
        w,
        rows,
        blocks,
        *flags,
        ROWS,
        CHANNELS,
        **options,
    )
    dx = spread(gated, x, keep, saved, weight, bias, sums, relu and not is_gated)
    return dx, gated if is_added else None, sums


def statistics(
    x: Tensor, running: tuple[Tensor, Tensor, Tensor], momentum: float, eps: float
) -> Tensor:
    """Return mean and 1 / standard deviation of channels_last [N, C, H, W]: [2, C].

    Bring `running` up to date.
    """
    (n, c, h, w), columns = x.shape, -(-x.shape[1] // CHANNELS)
    blocks, rows = shares_of(n * h * w, 2 * ROWS, columns, x.device, RESIDENT_STATISTICS)
    shares, saved = running[0].new_empty(2, blocks, c), running[0].new_empty(2, c)
    launch(
        _statistics,
        (blocks, columns, 1),
        (x.dtype, c, x.device),
        x,
        shares,
        arrivals(x.device),
        saved,
        *running,
        n * h * w,
        c,
        rows,
        blocks,
        momentum,
        eps,
        2 * ROWS,
        CHANNELS,
        **STATISTICS_OPTIONS,
    )
    return saved


def spread(
    g: Tensor,
    x: Tensor,
    keep: Tensor | None,
    saved: Tensor,
    weight: Tensor,
    bias: Tensor,
    sums: Tensor,
    relu: bool,
) -> Tensor:
    """Return the gradient of the input, from that of the normalised input and its `sums`, [2, C]."""
    (n, c, h, w), dx, flags = x.shape, torch.empty_like(x), (keep is not None, relu)
    grid, scale = (-(-(n * h * w) // ROWS), -(-c // CHANNELS), 1), saved if keep is None else keep
    launch(
        _spread,
        grid,
        (x.dtype, c, x.device, *flags),
        g,
        x,
        scale,
        dx,
        saved,
        weight,
        bias,
        sums,
        n * h * w,
        c,
        h * w,
        *flags,
        ROWS,
        CHANNELS,
        **OPTIONS,
    )
    return dx


@cache
def shares_of(
    rows: int, tile: int, columns: int, device: torch.device, resident: int
) -> tuple[int, int]:
    """Return how many programs share the rows of each column of programs, and how many rows each takes, whole tiles."""
    most = max(1, resident * _multiprocessors(device) // columns)
    own = -(-rows // (most * tile)) * tile
    return -(-rows // own), own


@cache
def _multiprocessors(device: torch.device) -> int:
    return (
        torch.cuda.get_device_properties(device).multi_processor_count
        if device.type == "cuda"
        else 1
    )


@triton.jit
def _tile(x, row, rows, channel, c):
    """Load a tile in float32, with zeros beyond row `rows` and channel `c`."""
    inside = (row < rows)[:, None] & (channel < c)[None, :]
    return tl.load(x + row[:, None] * c + channel[None, :], mask=inside, other=0.0).to(tl.float32)


@triton.jit
def _two_tiles(x, row, rows, channel, c, BM: tl.constexpr):
    """Return the sum of two tiles.

    No later instruction needs the first before the second is loaded, too.
    """
    return _tile(x, row, rows, channel, c) + _tile(x, row + BM, rows, channel, c)


@triton.jit
def _put(y, row, rows, channel, c, value):
    inside = (row < rows)[:, None] & (channel < c)[None, :]
    tl.store(y + row[:, None] * c + channel[None, :], value.to(y.dtype.element_ty), mask=inside)


@triton.jit
def _kept(keep, row, m, area):
    """Return, for each row, the factor of the image it belongs to."""
    return tl.load(keep + row // area, mask=row < m, other=0.0)[:, None]


@triton.jit(do_not_specialize=["m", "rows", "blocks"])
def _statistics(
    x,
    shares,
    arrivals,
    saved,
    running_mean,
    running_var,
    tracked,
    m,
    c,
    rows,
    blocks,
    momentum,
    eps,
    BM: tl.constexpr,
    BC: tl.constexpr,
):
    """Sum each share about a value near its mean and combine the shares as in Chan, Golub and LeVeque (1983)."""
    block = tl.program_id(0)
    channel = tl.program_id(1) * BC + tl.arange(0, BC)
    known = channel < c
    row = tl.arange(0, BM)
    own = tl.minimum(rows, m - block * rows)
    x += block.to(tl.int64) * rows * c
    shift = tl.sum(_tile(x, row, own, channel, c), 0) / tl.minimum(own, BM)
    total = tl.zeros([BM, BC], tl.float32)
    square = tl.zeros([BM, BC], tl.float32)
    for start in range(0, own, BM):
        apart = _tile(x, start + row, own, channel, c) - shift[None, :]
        apart = tl.where((start + row < own)[:, None], apart, 0.0)
        total += apart
        square += apart * apart
    sum_apart = tl.sum(total, 0)
    tl.store(shares + block * c + channel, shift + sum_apart / own, mask=known)
    tl.store(
        shares + (blocks + block) * c + channel,
        tl.sum(square, 0) - sum_apart * sum_apart / own,
        mask=known,
    )
    if last(arrivals, blocks):
        near = tl.load(shares + channel, mask=known, other=0.0, cache_modifier=".cg")
        total = tl.zeros([BM, BC], tl.float32)
        for start in range(0, blocks, BM):
            count = tl.minimum(rows, m - (start + row) * rows).to(tl.float32)[:, None]
            apart = _tile(shares, start + row, blocks, channel, c) - near[None, :]
            total += tl.where((start + row < blocks)[:, None], apart * count, 0.0)
        middle = near + tl.sum(total, 0) / m
        square = tl.zeros([BM, BC], tl.float32)
        for start in range(0, blocks, BM):
            count = tl.minimum(rows, m - (start + row) * rows).to(tl.float32)[:, None]
            apart = _tile(shares, start + row, blocks, channel, c) - middle[None, :]
            within = _tile(shares + blocks * c, start + row, blocks, channel, c)
            square += tl.where((start + row < blocks)[:, None], within + apart * apart * count, 0.0)
        squares = tl.sum(square, 0)
        tl.store(saved + channel, middle, mask=known)
        tl.store(saved + c + channel, 1.0 / tl.sqrt(squares / m + eps), mask=known)
        before = tl.load(running_mean + channel, mask=known, other=0.0)
        tl.store(running_mean + channel, before * (1.0 - momentum) + middle * momentum, mask=known)
        before = tl.load(running_var + channel, mask=known, other=0.0)
        unbiased = squares / tl.maximum(m - 1, 1)
        tl.store(running_var + channel, before * (1.0 - momentum) + unbiased * momentum, mask=known)
        if tl.program_id(1) == 0:
            tl.store(tracked, tl.load(tracked) + 1)


@triton.jit
def _normalized(x, saved, weight, bias, channel, c):
    """Return weight * (x - mean) * rstd + bias.

    Backward repeats it exactly, so it finds the same signs.
    """
    known = channel < c
    scale = tl.load(weight + channel, mask=known, other=0.0) * tl.load(
        saved + c + channel, mask=known, other=0.0
    )
    apart = x - tl.load(saved + channel, mask=known, other=0.0)[None, :]
    return apart * scale[None, :] + tl.load(bias + channel, mask=known, other=0.0)[None, :]


@triton.jit(do_not_specialize=["m", "area"])
def _apply(
    x,
    residual,
    keep,
    z,
    saved,
    weight,
    bias,
    m,
    c,
    area,
    ADD: tl.constexpr,
    KEEP: tl.constexpr,
    RELU: tl.constexpr,
    BM: tl.constexpr,
    BC: tl.constexpr,
):
    """Normalise, multiply by `keep`, add the residual and apply ReLU."""
    first = tl.program_id(0).to(tl.int64) * BM * c
    left = m - tl.program_id(0) * BM
    row = tl.arange(0, BM)
    channel = tl.program_id(1) * BC + tl.arange(0, BC)
    value = _normalized(_tile(x + first, row, left, channel, c), saved, weight, bias, channel, c)
    if KEEP:
        value *= _kept(keep, tl.program_id(0) * BM + row, m, area)
    if ADD:
        value += _tile(residual + first, row, left, channel, c)
    if RELU:
        value = rectified(value)
    _put(z + first, row, left, channel, c, value)


@triton.jit(do_not_specialize=["m", "h", "w", "rows", "blocks"])
def _reduce(
    g,
    other,
    x,
    z,
    keep,
    gated,
    shares,
    arrivals,
    saved,
    weight,
    bias,
    sums,
    m,
    c,
    h,
    w,
    rows,
    blocks,
    TWICE: tl.constexpr,
    ADD: tl.constexpr,
    KEEP: tl.constexpr,
    RELU: tl.constexpr,
    HALVED: tl.constexpr,
    BM: tl.constexpr,
    BC: tl.constexpr,
):
    """Sum the gradients of weight and bias.

    With a residual or a half, store the gradient after the ReLU's mask.
    """
    block = tl.program_id(0)
    channel = tl.program_id(1) * BC + tl.arange(0, BC)
    row = tl.arange(0, BM)
    own = tl.minimum(rows, m - block * rows)
    first = block.to(tl.int64) * rows * c
    center = tl.load(saved + channel, mask=channel < c, other=0.0)
    sum_g = tl.zeros([BM, BC], tl.float32)
    sum_gx = tl.zeros([BM, BC], tl.float32)
    for start in range(0, own, BM):
        at = start + row
        upstream, value = (
            _tile(g + first, at, own, channel, c),
            _tile(x + first, at, own, channel, c),
        )
        if TWICE and HALVED:
            upstream += blurred.halved_gradient(other, block * rows + at, m, channel, c, h, w)
        elif TWICE:
            upstream += _tile(other + first, at, own, channel, c)
        if RELU:
            if ADD:
                output = _tile(z + first, at, own, channel, c)
            else:
                output = _normalized(value, saved, weight, bias, channel, c)
            upstream = tl.where(output <= 0, 0.0, upstream)
        if ADD or HALVED:
            _put(gated + first, at, own, channel, c, upstream)
        if KEEP:
            upstream *= _kept(keep, block * rows + at, m, h * w)
        sum_g += upstream
        sum_gx += upstream * (value - center[None, :])
    add_up(
        shares,
        arrivals,
        saved,
        sums,
        tl.sum(sum_g, 0),
        tl.sum(sum_gx, 0),
        block,
        blocks,
        channel,
        c,
        BM,
        BC,
    )


@triton.jit
def add_up(
    shares,
    arrivals,
    saved,
    sums,
    sum_g,
    sum_gx,
    block,
    blocks,
    channel,
    c,
    BM: tl.constexpr,
    BC: tl.constexpr,
):
    """Store the share of a program in the sums of g and g * (x - mean).

    The last to arrive adds up all.
    """
    known = channel < c
    tl.store(shares + block * c + channel, sum_g, mask=known)
    tl.store(shares + (blocks + block) * c + channel, sum_gx, mask=known)
    if last(arrivals, blocks):
        row = tl.arange(0, BM)
        total_g = tl.zeros([BM, BC], tl.float32)
        total_gx = tl.zeros([BM, BC], tl.float32)
        for start in range(0, blocks, 2 * BM):
            total_g += _two_tiles(shares, start + row, blocks, channel, c, BM)
            total_gx += _two_tiles(shares + blocks * c, start + row, blocks, channel, c, BM)
        inverse = tl.load(saved + c + channel, mask=known, other=0.0)
        tl.store(sums + c + channel, tl.sum(total_g, 0), mask=known)
        tl.store(sums + channel, tl.sum(total_gx, 0) * inverse, mask=known)


@triton.jit(do_not_specialize=["m", "area"])
def _spread(
    g,
    x,
    keep,
    dx,
    saved,
    weight,
    bias,
    sums,
    m,
    c,
    area,
    KEEP: tl.constexpr,
    RELU: tl.constexpr,
    BM: tl.constexpr,
    BC: tl.constexpr,
):
    """Store weight * rstd * (g - mean(g) - x_hat * mean(g * x_hat)), where x_hat is the normalised input."""
    first = tl.program_id(0).to(tl.int64) * BM * c
    left = m - tl.program_id(0) * BM
    row = tl.arange(0, BM)
    channel = tl.program_id(1) * BC + tl.arange(0, BC)
    known = channel < c
    upstream, value = (
        _tile(g + first, row, left, channel, c),
        _tile(x + first, row, left, channel, c),
    )
    if RELU:
        upstream = tl.where(_normalized(value, saved, weight, bias, channel, c) <= 0, 0.0, upstream)
    if KEEP:
        upstream *= _kept(keep, tl.program_id(0) * BM + row, m, area)
    inverse = tl.load(saved + c + channel, mask=known, other=0.0)
    slope = tl.load(sums + channel, mask=known, other=0.0) * inverse / m
    level = tl.load(sums + c + channel, mask=known, other=0.0) / m
    center = tl.load(saved + channel, mask=known, other=0.0)
    scale = tl.load(weight + channel, mask=known, other=0.0) * inverse
    value = upstream - level[None, :] - (value - center[None, :]) * slope[None, :]
    _put(dx + first, row, left, channel, c, value * scale[None, :])
