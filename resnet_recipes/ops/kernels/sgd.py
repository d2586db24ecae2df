"""Triton kernel for a step of gradient descent on many weights: one program for each part of a weight."""

from functools import lru_cache
from operator import is_

import numpy as np
import torch
import triton
import triton.language as tl
from torch import Tensor

from resnet_recipes.ops.host import send
from resnet_recipes.ops.kernels.launch import launch
from resnet_recipes.ops.memory import matched, require

VALUES, PART = 2048, 512  # values of a weight that one program steps, and at once
OPTIONS = {"num_warps": 4, "enable_fp_fusion": True}

TYPES = {torch.float32: tl.float32, torch.bfloat16: tl.bfloat16, torch.float16: tl.float16}

#: What a program looks up about its weight: addresses, the number of values, and its first program.
WEIGHT = np.dtype([(name, "i8") for name in ("weight", "grad", "mean", "copy", "size", "first")])

#: The tables of tensors at given addresses, on the GPU.
_tables: dict[tuple, Tensor] = {}
TABLES = 16  # tables kept; only gradients that are replayed or exchanged keep their addresses


def step(
    weights: list[Tensor],
    grads: list[Tensor],
    means: list[Tensor],
    copies: list[Tensor],
    rate: float,
    kept: float,
    decay: float,
    momentum: float,
    nesterov: bool,
    scale: Tensor | None,
    overflow: Tensor | None,
) -> None:
    """Step float32 weights; see `ops.sgd.plain`. Tensors are checked, and their addresses sent, if these are new."""
    sizes = tuple(map(Tensor.numel, weights))
    weight_of, firsts = _programs(sizes, weights[0].device)
    key = (
        *map(Tensor.data_ptr, [*weights, *grads, *means, *copies]),
        *map(Tensor.stride, [*weights, *grads]),
        sizes,
    )
    if (table := _tables.get(key)) is None:
        require(weights, {"momentum": means} if means else {})
        in_order = matched(weights, grads)
        rows = np.zeros(len(weights), WEIGHT)
        rows["size"], rows["first"] = sizes, firsts
        for name, tensors in (
            ("weight", weights),
            ("grad", in_order),
            ("mean", means or weights),
            ("copy", copies),
        ):
            rows[name] = [tensor.data_ptr() for tensor in tensors]
        table = send(rows.view(np.int64), weights[0].device)
        if all(map(is_, in_order, grads)):
            if len(_tables) == TABLES:
                _tables.clear()
            _tables[key] = table
    dtype = min({copy.dtype for copy in copies}, key=lambda dtype: dtype.itemsize)
    flags = bool(means), nesterov, scale is not None, overflow is not None
    scaler = [table if tensor is None else tensor for tensor in (scale, overflow)]
    # Triton would compile an integer 1 into the kernel
    numbers = map(float, (rate, kept, decay, momentum))
    launch(
        _step,
        (len(weight_of), 1, 1),
        (dtype, table.device, *flags),
        table,
        weight_of,
        *scaler,
        *numbers,
        *flags,
        TYPES[dtype],
        VALUES,
        PART,
        **OPTIONS,
    )


@lru_cache(maxsize=TABLES)
def _programs(sizes: tuple[int, ...], device: torch.device) -> tuple[Tensor, np.ndarray]:
    """Return the weight of each program, on the device, and the first program of each weight."""
    programs = -(-np.array(sizes) // VALUES)
    return send(
        np.repeat(np.arange(len(sizes), dtype=np.int32), programs), device
    ), programs.cumsum() - programs


@triton.jit
def _address(table, entry: tl.constexpr, dtype: tl.constexpr):
    return tl.multiple_of(tl.load(table + entry).to(tl.pointer_type(dtype)), 16)


@triton.jit
def _part(
    weight,
    grad,
    mean,
    copy,
    at,
    mask,
    skips,
    inverse,
    rate,
    kept,
    decay,
    momentum,
    MEAN: tl.constexpr,
    NESTEROV: tl.constexpr,
    COPY: tl.constexpr,
):
    """Step a part of a weight, or only write its copy; a mask of None stands for the whole part."""
    value = tl.load(weight + at, mask=mask)
    change = tl.load(grad + at, mask=mask) * inverse + decay * value
    if MEAN:
        before = tl.load(mean + at, mask=mask)
        average = momentum * before + change
        tl.store(mean + at, tl.where(skips, before, average), mask=mask)
        change = change + momentum * average if NESTEROV else average
    value = tl.where(skips, value, kept * value - rate * change)
    tl.store(weight + at, value, mask=mask)
    if copy.to(tl.int64) != weight.to(tl.int64):
        tl.store(copy + at, value.to(COPY), mask=mask)


@triton.jit
def _step(
    table,
    weight_of,
    scale,
    overflow,
    rate,
    kept,
    decay,
    momentum,
    MEAN: tl.constexpr,
    NESTEROV: tl.constexpr,
    SCALED: tl.constexpr,
    GUARDED: tl.constexpr,
    COPY: tl.constexpr,
    BV: tl.constexpr,
    BP: tl.constexpr,
):
    """Step up to BV values of one weight."""
    table += 6 * tl.load(weight_of + tl.program_id(0))
    weight, grad = _address(table, 0, tl.float32), _address(table, 1, tl.float32)
    mean, copy = _address(table, 2, tl.float32), _address(table, 3, COPY)
    size, start = (
        tl.load(table + 4).to(tl.int32),
        (tl.program_id(0) - tl.load(table + 5).to(tl.int32)) * BV,
    )
    inverse, skips = 1.0, False
    if SCALED:
        inverse = 1.0 / tl.load(scale).to(tl.float32)
    if GUARDED:
        skips = tl.load(overflow).to(tl.float32) != 0
    for begin in range(start, tl.minimum(start + BV, size), BP):
        at = begin + tl.arange(0, BP)
        if begin + BP <= size:
            _part(
                weight,
                grad,
                mean,
                copy,
                at,
                None,
                skips,
                inverse,
                rate,
                kept,
                decay,
                momentum,
                MEAN,
                NESTEROV,
                COPY,
            )
        else:
            _part(
                weight,
                grad,
                mean,
                copy,
                at,
                at < size,
                skips,
                inverse,
                rate,
                kept,
                decay,
                momentum,
                MEAN,
                NESTEROV,
                COPY,
            )
