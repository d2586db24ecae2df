"""Plain Triton matrix products next to cuDNN, at the 1x1 convolutions of ResNet-50.

A 1x1 convolution of stride 1 is a matrix product over all pixels. Kernels that also compute what
BatchNorm needs can only be faster than two kernels if plain products come close to the roofline.
"""

from collections import Counter
from collections.abc import Callable, Iterator
from functools import partial
from typing import NamedTuple

import torch
import triton
import triton.language as tl
from convolutions import BATCH, SIZES, list_calls, make_operands, name_convolution
from faults import measure_or_report_fault
from runs import find_gpu
from torch import Tensor

from resnet_recipes.doctor.rates import measure_seconds
from resnet_recipes.planning.roofline import Convolution, iterate_convolutions

#: Programs that a weights' gradient is divided into, because its output has few tiles.
PROGRAMS = 512


class Tile(NamedTuple):
    """The part of a product that one program computes, and the threads and loads it uses."""

    rows: int
    columns: int
    inner: int
    warps: int
    stages: int


#: All are tried for each product, and the fastest counts.
TILES = (
    Tile(128, 64, 64, 4, 4),
    Tile(128, 128, 64, 8, 3),
    Tile(256, 128, 64, 8, 3),
)


def measure_rows(device: torch.device, quick: bool) -> Iterator[dict]:
    """Yield the fraction of the roofline of each product, and of all together, by operation."""
    if device.type != "cuda":
        return  # Triton has no CPU backend
    batch = 2 if quick else BATCH
    for size in (32,) if quick else SIZES[:2]:
        convolutions = iterate_convolutions("resnet50", size)
        shapes = Counter(each._replace(relu=True, adds=False) for each in convolutions)
        measured = []
        for shape, layers_of_shape in shapes.items():
            if (shape.kernel, shape.stride) != (1, 1):
                continue
            case = f"{size} px: {name_convolution(shape)}"
            for row in measure_or_report_fault(case, _measure, case, shape, batch, device):
                measured.append(row | {"layers": layers_of_shape})
                yield measured[-1]
        if not any("fault" in row for row in measured):
            yield from _sum_operations(size, measured)


def multiply(left: Tensor, right: Tensor, parts: int, tile: Tile) -> Tensor:
    """Return the product of two matrices of any strides, [M, K] and [K, N].

    With several `parts`, each sums a part of K in float32, and torch adds them.
    """
    rows, inner = left.shape
    columns = right.shape[1]
    dtype = left.dtype if parts == 1 else torch.float32
    out = torch.empty((parts, rows, columns), device=left.device, dtype=dtype)
    grid = triton.cdiv(columns, tile.columns), triton.cdiv(rows, tile.rows), parts
    sizes = rows, columns, inner, *left.stride(), *right.stride()
    options = {"num_warps": tile.warps, "num_stages": tile.stages}
    _multiply[grid](left, right, out, *sizes, tile.rows, tile.columns, tile.inner, **options)
    return out[0] if parts == 1 else out.sum(0).to(left.dtype)


@triton.jit
def _multiply(
    left, right, out, rows, columns, inner, left_row, left_inner, right_inner, right_column,
    R: tl.constexpr, C: tl.constexpr, K: tl.constexpr,
):  # fmt: skip
    """Compute a tile of R rows and C columns, over one part of the inner dimension."""
    column = tl.program_id(0) * C + tl.arange(0, C)
    row = tl.program_id(1) * R + tl.arange(0, R)
    part = tl.program_id(2)
    length = tl.cdiv(tl.cdiv(inner, K), tl.num_programs(2)) * K
    total = tl.zeros((R, C), tl.float32)
    for first in range(part * length, min(part * length + length, inner), K):
        step = first + tl.arange(0, K)
        places = row[:, None] * left_row + step[None, :] * left_inner
        mask = (row[:, None] < rows) & (step[None, :] < inner)
        a = tl.load(left + places, mask, 0.0)
        places = step[:, None] * right_inner + column[None, :] * right_column
        mask = (step[:, None] < inner) & (column[None, :] < columns)
        b = tl.load(right + places, mask, 0.0)
        total = tl.dot(a, b, total)
    out += part * rows * columns
    mask = (row[:, None] < rows) & (column[None, :] < columns)
    tl.store(out + row[:, None] * columns + column[None, :], total.to(out.dtype.element_ty), mask)


def list_products(
    images: Tensor, weights: Tensor, upstream: Tensor
) -> dict[str, Callable[[Tile], Tensor]]:
    """Return the three operations of a 1x1 convolution as products, for a tile.

    Results are matrices: pixels by channels, or outputs by inputs for the weights.
    """
    pixels, gradient = (x.permute(0, 2, 3, 1).flatten(0, 2) for x in (images, upstream))
    matrix = weights.flatten(1)

    def compute_weight_gradient(tile: Tile) -> Tensor:
        tiles = triton.cdiv(matrix.shape[0], tile.rows) * triton.cdiv(matrix.shape[1], tile.columns)
        return multiply(gradient.t(), pixels, triton.cdiv(PROGRAMS, tiles), tile)

    return {
        "output": partial(multiply, pixels, matrix.t(), 1),
        "input's gradient": partial(multiply, gradient, matrix, 1),
        "weights' gradient": compute_weight_gradient,
    }


def _measure(case: str, shape: Convolution, batch: int, device: torch.device) -> Iterator[dict]:
    """Yield the row of each operation: the fastest tile, and cuDNN."""
    gpu = find_gpu(device)
    operands = make_operands(shape, batch, device)
    flops = batch * shape.flops
    moved_bytes = 2 * (batch * (shape.input_elements + shape.output_elements))
    least_seconds = max(flops / gpu.flops, moved_bytes / gpu.traffic) if gpu else 0.0
    products = list_products(*operands)
    calls = list_calls(shape, *operands)
    for kind, product in products.items():
        seconds = {
            tile: measure_seconds(partial(product, tile), device, times=3, repeats=5)
            for tile in TILES
        }
        best = min(seconds, key=seconds.__getitem__)
        peer = measure_seconds(calls[kind], device, times=3, repeats=5)
        yield {
            "case": f"{case}, {kind}",
            "value": least_seconds / seconds[best],
            "unit": "of the roofline",
            "operation": kind,
            "microseconds": 1e6 * seconds[best],
            "peer_microseconds": 1e6 * peer,
            "least_microseconds": 1e6 * least_seconds,
            "note": f"cuDNN {least_seconds / peer:.2f}; tile {best.rows}x{best.columns}",
        }


def _sum_operations(size: int, rows: list[dict]) -> Iterator[dict]:
    """Yield the fraction of the roofline that the products of a step reach, by operation."""
    for kind in dict.fromkeys(row["operation"] for row in rows):
        least, ours, peer = (
            sum(row["layers"] * row[key] for row in rows if row["operation"] == kind)
            for key in ("least_microseconds", "microseconds", "peer_microseconds")
        )
        yield {
            "case": f"{size} px: all 1x1 of a step, {kind}",
            "value": least / ours,
            "unit": "of the roofline",
            "note": f"{ours / 1e3:.2f} ms; cuDNN {peer / 1e3:.2f} ms, {least / peer:.2f}",
        }
