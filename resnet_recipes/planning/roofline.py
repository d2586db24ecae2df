"""Predict the speed and memory of ResNet training on a GPU from its datasheet.

The prediction adds up the layers; nothing is measured.
"""

import csv
import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import NamedTuple

from resnet_recipes.planning.layers import Convolution, count_backbone_weights, iterate_convolutions


@dataclass(frozen=True)
class GpuDatasheet:
    """A GPU: speeds from its datasheet, and fractions of them fitted to measured training."""

    name: str
    pattern: str  # regular expression for the name reported by the driver
    teraflops: float  # bf16 or fp16 with fp32 sums, dense, 10^12 per second
    terabytes: float  # memory bandwidth, 10^12 bytes per second
    sustained: float  # fraction of `teraflops` that a large matrix product sustains
    convolution: float  # fraction of the roofline that cuDNN convolutions reach
    plain: float  # fraction of `traffic` that elementwise torch kernels reach

    @property
    def traffic(self) -> float:
        """Bytes per second that a large copy sustains."""
        return 0.88e12 * self.terabytes

    @property
    def flops(self) -> float:
        """FLOPs per second that a large matrix product sustains."""
        return 1e12 * self.teraflops * self.sustained


#: Speeds: NVIDIA datasheets of V100, T4, A100, L4, L40S, H100 and H200, of HGX B200, and the GA102
#: and AD102 white papers. Fractions: H200 measured by benchmarks/gpu_session; A100, V100 and 3090
#: from PyTorch and timm; convolutions of A100, H100 and L40S from MLPerf logs; the others are
#: guesses (docs/lab/predictions.md).
with Path(__file__).with_name("datasheet.csv").open(encoding="utf-8", newline="") as _file:
    next(_file)  # the names of the columns
    DATASHEETS = tuple(
        GpuDatasheet(name, pattern, *map(float, figures))
        for name, pattern, *figures in csv.reader(_file)
    )


def find_datasheet(name: str) -> GpuDatasheet | None:
    """Return the GPU that the driver reports as `name`, as in "NVIDIA A100-SXM4-80GB".

    None if it is not in the table.
    """
    bare = re.sub(r"^(NVIDIA|Tesla)\s+", "", re.sub(r"^NVIDIA\s+", "", name.strip()))
    return next((gpu for gpu in DATASHEETS if re.fullmatch(gpu.pattern, bare)), None)


BYTES_PER_ACTIVATION = 2  # bf16 or fp16
# The next four were measured on an H200, in steps at 224, 176 and 88 px.
FUSED_BANDWIDTH_FRACTION = 0.85  # fused kernels except the max pool
BLUR_BANDWIDTH_FRACTION = 0.35  # depthwise torch convolutions: 0.39, and 0.30 with stride 2
POOL_BYTES_PER_SECOND = 0.6e12  # torch max pool, including its index: 0.53e12 to 0.66e12
KERNEL_START_SECONDS = 6e-6  # additional time per kernel, to start and to drain
KERNELS_PER_CONVOLUTION = 8  # kernels of a convolution and its BatchNorm: counted
CONVOLUTION_ISSUE_SECONDS = 345e-6  # seconds on the host of that H200: 313e-6 and 385e-6
REPLAY_ISSUE_SECONDS = 3e-3  # a CUDA graph, its input and the optimizer: assumed (at most 6e-3)
OPTIMIZER_BYTES_PER_WEIGHT = 45  # bytes of a step: decay, weight, gradient, momentum, and casts
RESERVED_BYTES = 1e9  # CUDA context and cuDNN workspace: assumed
MAX_ALLOCATOR_FACTOR = 1.2  # bytes that the torch allocator reserves per byte in use: counted


class Work(NamedTuple):
    """One training step on a GPU."""

    model: str
    image_size: int  # image height and width, in pixels
    batch: int  # images per forward and backward pass
    blur: bool = False  # BlurPool, as in the recipes
    fused: bool = False  # fused BatchNorm, ReLU and sum, fused blur, and CUDA graphs


class Speed(NamedTuple):
    """The predicted speed of one GPU for some work."""

    images_per_second: float
    limit: str  # the bottleneck: compute | memory traffic | kernel launches


def predict_speed(gpu: GpuDatasheet, work: Work) -> Speed:
    """Return the predicted speed of a GPU that runs all operations in turn."""
    compute = traffic = 0.0
    for flops, moved in _list_passes(work):
        computing = flops / gpu.flops
        loading = moved / gpu.traffic
        if computing > loading:
            compute += computing / gpu.convolution
        else:
            traffic += loading / gpu.convolution
    by_operation = count_traffic(work)
    others = sum(by_operation.values()) - by_operation["convolution"]
    if work.fused:
        traffic += others / (FUSED_BANDWIDTH_FRACTION * gpu.traffic)
    else:
        others -= by_operation["blur"] + by_operation["pool"]
        traffic += (
            others / gpu.plain + by_operation["blur"] / BLUR_BANDWIDTH_FRACTION
        ) / gpu.traffic
        traffic += by_operation["pool"] / min(POOL_BYTES_PER_SECOND, gpu.plain * gpu.traffic)
    traffic += KERNEL_START_SECONDS * KERNELS_PER_CONVOLUTION * len(_list_layers(work)) / work.batch
    host = (
        REPLAY_ISSUE_SECONDS if work.fused else CONVOLUTION_ISSUE_SECONDS * len(_list_layers(work))
    ) / work.batch
    if host > compute + traffic:
        return Speed(1 / host, "kernel launches")
    limit = "compute" if compute > traffic else "memory traffic"
    return Speed(1 / (compute + traffic), limit)


@cache
def count_traffic(work: Work) -> dict[str, float]:
    """Return the memory traffic in bytes per image and step, by kind of operation."""
    layers = _list_layers(work)
    fused = work.fused
    outputs = sum(layer.output_elements for layer in layers)
    sums = sum(layer.output_elements for layer in layers if layer.adds)
    activated = sum(layer.output_elements for layer in layers if layer.relu)
    stem = layers[0].output_elements
    last = layers[-1].output_elements
    pooled = stem if work.blur else stem // 4
    elements = {
        # forward: 1 for the statistics, 2 for the values; backward: 2 for the sums, 3 for the
        # gradients. A fused residual sum also moves the residual, the output, the residual's
        # gradient and, except in the last block, a second gradient of the output
        "batch norm": 8 * outputs + (4 * sums - last if fused else 0),
        "relu": 0 if fused else 5 * activated,
        "sum": 0 if fused else 3 * sums,
        # gradients of tensors with two consumers; fused operations have only that of the first
        # pool
        "gradients of sums": 3 * (stem // 4 + (0 if fused else sums - last)),
        "blur": sum(
            4 * read if stride == 1 else 2 * (read + read // 4)
            for read, stride in _iterate_blurs(work)
        ),
        "pool": 2 * (stem + pooled) + 2 * pooled * _count_index_bytes(work) // BYTES_PER_ACTIVATION,
    }
    bytes_by_kind = {
        kind: float(BYTES_PER_ACTIVATION * number) for kind, number in elements.items()
    }
    bytes_by_kind["optimizer"] = (
        OPTIMIZER_BYTES_PER_WEIGHT * count_backbone_weights(work.model) / work.batch
    )
    bytes_by_kind["convolution"] = sum(moved for _, moved in _list_passes(work))
    return bytes_by_kind


def count_memory(work: Work, images: int, weights: int, copies: int) -> float:
    """Return the bytes of GPU memory for training.

    `images` is the number of images in a complete step, and `weights` the number of weights.
    `copies` is the number of fp32 values per weight, for weights, gradients and optimizer state.
    """
    # Memory peaks at the end of the forward pass, because the backward pass frees the tensors that
    # it has read. Pixels are uint8 and float32; a graph keeps its own copy.
    pixel_bytes = images * 3 * work.image_size**2 * (9 if work.fused else 5)
    used = (
        work.batch * count_kept_bytes(work)
        + pixel_bytes
        + weights * (4 * copies + BYTES_PER_ACTIVATION)
    )
    # an evaluation cannot use the memory of a CUDA graph
    widest = max(layer.output_elements for layer in _list_layers(work))
    evaluation = 3 * BYTES_PER_ACTIVATION * widest * work.batch if work.fused else 0
    return RESERVED_BYTES + MAX_ALLOCATOR_FACTOR * used + evaluation


def count_kept_bytes(work: Work) -> int:
    """Return the bytes per image that a forward pass keeps for the backward pass."""
    layers = _list_layers(work)
    stem = layers[0].output_elements
    pooled = stem if work.blur else stem // 4
    elements = sum(layer.output_elements * (2 if layer.relu else 1) for layer in layers)
    elements -= stem if work.fused else 0  # input of the fused pool
    if work.fused and work.blur:
        # a fused blur keeps only the blurred outputs, and the halved inputs besides the full ones
        halves = sum(
            layer.input_elements // 4 for layer in layers if (layer.kernel, layer.stride) == (1, 2)
        )
        elements += halves + stem // 4
    else:
        elements += pooled + sum(read + read // stride**2 for read, stride in _iterate_blurs(work))
    return BYTES_PER_ACTIVATION * elements + _count_index_bytes(work) * pooled


def _count_index_bytes(work: Work) -> int:
    """Return the bytes per maximum that store its place: int64 in torch, uint8 in the kernel."""
    return 1 if work.fused else 8


@cache
def _list_layers(work: Work) -> tuple[Convolution, ...]:
    return tuple(iterate_convolutions(work.model, work.image_size))


@cache
def _list_passes(work: Work) -> tuple[tuple[float, float], ...]:
    """Return the FLOPs and bytes per image of each pass of each convolution."""
    passes = []
    for layer in _list_layers(work):
        # the blur takes the stride
        is_blurred = work.blur and layer.kernel == 1 and layer.stride == 2
        read = layer.input_elements // 4 if is_blurred else layer.input_elements
        moved = BYTES_PER_ACTIVATION * (read + layer.output_elements + layer.weights / work.batch)
        passes += [(layer.flops, moved)] * layer.passes()
    return tuple(passes)


def _iterate_blurs(work: Work) -> Iterator[tuple[int, int]]:
    """Yield the input elements per image and the stride of each blur.

    A blur follows the max pool, and precedes each strided convolution.
    """
    if work.blur:
        yield _list_layers(work)[0].output_elements, 2
        for layer in _list_layers(work)[1:]:
            if layer.stride == 2:
                yield layer.input_elements, 2 if layer.kernel == 1 else 1
