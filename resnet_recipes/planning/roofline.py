"""How fast a GPU trains a ResNet and how much memory that takes, by its datasheet.

Computed layer by layer, not measured.
"""

import csv
import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import NamedTuple

from resnet_recipes.base.kinds import parse_texts
from resnet_recipes.planning.layers import Convolution, count_backbone_weights, list_convolutions


@dataclass(frozen=True)
class Gpu:
    """A GPU: rates from its datasheet, and shares of them fitted to measured training speeds."""

    name: str
    pattern: str  # regular expression of the driver's name for it
    teraflops: float  # bf16 or fp16 with sums in fp32, dense, 10^12 per second
    terabytes: float  # memory traffic, 10^12 bytes per second
    gigabytes: float  # memory, 10^9 bytes
    sustained: float  # fraction of `teraflops` that a large matrix product sustains
    convolution: float  # fraction of the roofline that cuDNN's convolutions reach
    plain: float  # fraction of `traffic` that torch's elementwise kernels reach

    @property
    def traffic(self) -> float:
        """Bytes per second that a large copy sustains."""
        return 0.88e12 * self.terabytes

    @property
    def flops(self) -> float:
        """Floating-point operations per second that a large matrix product sustains."""
        return 1e12 * self.teraflops * self.sustained


#: Rates: NVIDIA's datasheets of V100, T4, A100, L4, L40S, H100 and H200, of HGX B200, and the GA102
#: and AD102 white papers. Shares: H200 measured by benchmarks/gpu_session; A100, V100 and 3090 from
#: PyTorch and timm; convolutions of A100, H100 and L40S from MLPerf logs; the others are guesses
#: (docs/lab/predictions.md).
with Path(__file__).with_name("datasheet.csv").open(encoding="utf-8", newline="") as _file:
    GPUS: tuple[Gpu, ...] = tuple(parse_texts(Gpu, row) for row in csv.DictReader(_file))


def find_gpu(name: str) -> Gpu | None:
    """Return the GPU that the driver calls `name`, as in "NVIDIA A100-SXM4-80GB".

    None if it is not in the table.
    """
    bare = re.sub(r"^(NVIDIA|Tesla)\s+", "", re.sub(r"^NVIDIA\s+", "", name.strip()))
    return next((gpu for gpu in GPUS if re.fullmatch(gpu.pattern, bare)), None)


BYTES = 2  # per activation, in bf16 or fp16
# Measured on an H200 in steps at 224, 176 and 88 px: shares of the memory traffic that our fused
# kernels reach, without that of the max pool, and torch's depthwise convolution where it blurs
# (0.39, and 0.30 with stride 2); bytes per second of torch's max pool, index included (0.53e12 to
# 0.66e12)
FUSED_SHARE, BLURRED, POOLED = 0.85, 0.35, 0.6e12
# Seconds that every kernel needs besides, to start and to drain: measured there as well. Kernels
# per convolution and its BatchNorm: counted.
START, KERNELS = 6e-6, 8
# Seconds that the host takes to issue a step: per convolution, measured beside that H200 (313e-6
# and 385e-6); and as a CUDA graph with input and optimizer, assumed: it was 6 ms there at most.
ISSUE, REPLAY = 345e-6, 3e-3
# Bytes that a step of SGD moves per weight: decay, weight, gradient, momentum, and the casts.
STEP = 45
RESERVED = 1e9  # bytes of context and of cuDNN's workspace: assumed
SPLIT = 1.2  # bytes that torch's allocator reserves for each that is used, at most: counted


class Work(NamedTuple):
    """One training step on a GPU."""

    model: str
    side: int  # of the images, in pixels
    batch: int  # images that go forward and backward together
    blur: bool = False  # BlurPool, as in the recipes
    fused: bool = False  # BatchNorm, ReLU and sum in one operation, blur in one; CUDA graphs


class Speed(NamedTuple):
    """How fast one GPU is expected to do some work."""

    images_per_second: float
    limit: str  # the bottleneck: arithmetic | memory traffic | kernel launches


def predict_speed(gpu: Gpu, work: Work) -> Speed:
    """Return a GPU's expected speed if operations run in turn at the shares it reaches."""
    arithmetic = moving = 0.0
    for flops, moved in _passes(work):
        computing, loading = flops / gpu.flops, moved / gpu.traffic
        if computing > loading:
            arithmetic += computing / gpu.convolution
        else:
            moving += loading / gpu.convolution
    kinds = count_traffic(work)
    others = kinds.total() - kinds["convolution"]
    if work.fused:
        moving += others / (FUSED_SHARE * gpu.traffic)
    else:
        others -= kinds["blur"] + kinds["pool"]
        moving += (others / gpu.plain + kinds["blur"] / BLURRED) / gpu.traffic
        moving += kinds["pool"] / min(POOLED, gpu.plain * gpu.traffic)
    moving += START * KERNELS * len(_layers(work)) / work.batch
    host = (REPLAY if work.fused else ISSUE * len(_layers(work))) / work.batch
    if host > arithmetic + moving:
        return Speed(1 / host, "kernel launches")
    limit = "arithmetic" if arithmetic > moving else "memory traffic"
    return Speed(1 / (arithmetic + moving), limit)


@cache
def count_traffic(work: Work) -> Counter[str]:
    """Return the memory traffic in bytes per image and step, by kind of operation."""
    layers, fused = _layers(work), work.fused
    outputs = sum(layer.written for layer in layers)
    sums = sum(layer.written for layer in layers if layer.adds)
    activated = sum(layer.written for layer in layers if layer.relu)
    stem, last = layers[0].written, layers[-1].written
    pooled = stem if work.blur else stem // 4
    elements = Counter(
        {
            # statistics, values; gradients' sums, gradients. With a sum also its two terms and,
            # except for the last, a second gradient, and its own gradient
            "batch norm": 8 * outputs + (4 * sums - last if fused else 0),
            "relu": 0 if fused else 5 * activated,
            "sum": 0 if fused else 3 * sums,
            # of a tensor that two others use: in the fused operations only the first pool's
            "gradients of sums": 3 * (stem // 4 + (0 if fused else sums - last)),
            "blur": sum(
                4 * read if stride == 1 else 2 * (read + read // 4) for read, stride in _blurs(work)
            ),
            "pool": 2 * (stem + pooled) + 2 * pooled * _index(work) // BYTES,
        }
    )
    bytes_by_kind = Counter({kind: float(BYTES * number) for kind, number in elements.items()})
    bytes_by_kind["optimizer"] = STEP * count_backbone_weights(work.model) / work.batch
    bytes_by_kind["convolution"] = sum(moved for _, moved in _passes(work))
    return bytes_by_kind


def count_memory(work: Work, images: int, weights: int, copies: int) -> float:
    """Return the bytes of GPU memory that training needs.

    `images` is their number in a complete step, `weights` the model's number of them, `copies` the
    fp32 values kept for each: weights, gradients, momentum and so on.
    """
    # memory peaks at the end of the forward pass: the backward pass frees what it has read
    # uint8 and float32 pixels; a graph keeps its own
    pixels = images * 3 * work.side**2 * (9 if work.fused else 5)
    used = work.batch * count_kept_bytes(work) + pixels + weights * (4 * copies + BYTES)
    # an evaluation cannot use the memory of a CUDA graph
    widest = max(layer.written for layer in _layers(work))
    evaluation = 3 * BYTES * widest * work.batch if work.fused else 0
    return RESERVED + SPLIT * used + evaluation


def count_kept_bytes(work: Work) -> int:
    """Return the bytes per image that a forward pass keeps for the backward pass."""
    layers = _layers(work)
    stem = layers[0].written
    pooled = stem if work.blur else stem // 4
    elements = sum(layer.written * (2 if layer.relu else 1) for layer in layers)
    elements -= stem if work.fused else 0  # the input of the fused pool
    if (
        work.fused and work.blur
    ):  # only the blurred outputs, and the halved inputs besides the full ones
        halves = sum(layer.read // 4 for layer in layers if (layer.kernel, layer.stride) == (1, 2))
        elements += halves + stem // 4
    else:
        elements += pooled + sum(read + read // stride**2 for read, stride in _blurs(work))
    return BYTES * elements + _index(work) * pooled


def _index(work: Work) -> int:
    """Return the bytes that store the place of a maximum: torch's int64, or the kernel's uint8."""
    return 1 if work.fused else 8


@cache
def _layers(work: Work) -> tuple[Convolution, ...]:
    return tuple(list_convolutions(work.model, work.side))


@cache
def _passes(work: Work) -> tuple[tuple[float, float], ...]:
    """Return operations and bytes per image of each convolution.

    Forward, backward for weights and for the input.
    """
    passes = []
    for layer in _layers(work):
        # the blur does the stride
        is_blurred = work.blur and layer.kernel == 1 and layer.stride == 2
        read = layer.read // 4 if is_blurred else layer.read
        moved = BYTES * (read + layer.written + layer.weights / work.batch)
        passes += [(layer.flops, moved)] * layer.passes()
    return tuple(passes)


def _blurs(work: Work) -> Iterator[tuple[int, int]]:
    """Yield elements and stride of each blur.

    After the pool, and at the inputs of strided convolutions.
    """
    if work.blur:
        yield _layers(work)[0].written, 2
        for layer in _layers(work)[1:]:
            if layer.stride == 2:
                yield layer.read, 2 if layer.kernel == 1 else 1
