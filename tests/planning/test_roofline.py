"""GPU speed predictions are sums over layers, and match published numbers."""

from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from unittest.mock import patch

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torchvision import models

from resnet_recipes import ops
from resnet_recipes.base.model_config import ModelConfig
from resnet_recipes.methods.blurpool import BlurPool
from resnet_recipes.methods.stack import Stack
from resnet_recipes.network.fuse import fuse
from resnet_recipes.planning.layers import count_flops, iterate_convolutions
from resnet_recipes.planning.roofline import (
    DATASHEETS,
    FUSED_BANDWIDTH_FRACTION,
    POOL_BYTES_PER_SECOND,
    Work,
    count_kept_bytes,
    count_memory,
    count_traffic,
    find_datasheet,
    predict_speed,
)
from tests.shared.tables import parse_rows, parse_values


@pytest.mark.parametrize(
    ("image_size", "giga", "megabytes"),
    parse_values(
        """
224 | 24.30 | 478.7
192 | 17.86 | 353.3
176 | 15.50 | 300.4
128 | 7.94 | 160.3
88 | 4.14 | 82.2
"""
    ),
)
def test_flops_and_traffic_match_counted_values(image_size, giga, megabytes):
    # The classifier is not counted.
    flops = count_flops(ModelConfig("resnet50"), 0, image_size, Stack({})).training
    assert flops / 1e9 == pytest.approx(giga, rel=0.003)
    moved = sum(count_traffic(Work("resnet50", image_size, 256)).values())
    assert moved / 1e6 == pytest.approx(megabytes, rel=0.01)


class CountingKernels(TorchDispatchMode):
    """Replaces the kernels of fused operations; each launch only counts the bytes of its images."""

    def __init__(self) -> None:
        super().__init__()
        self.moved = 0
        self.patches = ExitStack()
        self.forms = {
            f"{name}{end}": getattr(module, f"{start}_cuda")
            for name, module in ops.MODULES.items()
            for start, end in (("_forward", ""), ("_backward", "_backward"))
        }

    def __enter__(self) -> "CountingKernels":
        for name in ("batch_norm", "blur", "max_pool", "statistics"):
            module = pytest.importorskip(f"resnet_recipes.ops.kernels.{name}")
            self.patches.enter_context(patch.object(module, "launch", self.count_launch))
        return super().__enter__()

    def __exit__(self, *error: object) -> None:
        super().__exit__(*error)
        self.patches.close()

    def count_launch(self, kernel, grid, key, *arguments, **options) -> None:
        images = (
            value for value in arguments if isinstance(value, torch.Tensor) and value.dim() == 4
        )
        self.moved += sum(tensor.nbytes for tensor in images)

    def __torch_dispatch__(self, function, types, arguments=(), options=None):
        if function.namespace == "resnet_recipes":
            function = self.forms[function.__name__.partition(".")[0]]
        return function(*arguments, **(options or {}))


@pytest.mark.parametrize(("image_size", "blurs"), [(224, True), (88, True), (88, False)])
def test_fused_traffic_matches_kernel_arguments(image_size, blurs):
    """Nothing is computed: tensors have only shapes."""
    tensors = {}

    def keep(tensor: torch.Tensor) -> torch.Tensor:
        if tensor.dim() == 4 and not isinstance(tensor, torch.nn.Parameter):
            tensors[tensor.untyped_storage()._cdata] = tensor
        return tensor

    with torch.device("meta"):
        network = models.resnet50()
        if blurs:
            BlurPool().modify_model(network)
        network.to(torch.bfloat16, memory_format=torch.channels_last)
        fuse(
            network, ops.Operations(**{name: module.fused for name, module in ops.MODULES.items()})
        )
        images = torch.empty(1, 3, image_size, image_size, dtype=torch.bfloat16)
        with (
            CountingKernels() as kernels,
            torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor),
        ):
            network(images.to(memory_format=torch.channels_last)).sum().backward()
    work = Work("resnet50", image_size, 256, blurs, fused=True)
    # within a thousandth: half of an odd size is rounded up
    expected = sum(count_traffic(work)[kind] for kind in ("batch norm", "blur", "pool"))
    assert kernels.moved == pytest.approx(expected, rel=1e-3)
    # The images are not counted: the first convolution folds them into 16 channels.
    total = sum(t.nbytes for t in tensors.values() if t.shape[1] not in (3, 16))
    assert total == pytest.approx(count_kept_bytes(work), rel=1e-3)


def test_blur_traffic_is_one_read_and_write():
    stem, *layers = iterate_convolutions("resnet50", 64)
    kinds = count_traffic(Work("resnet50", 64, 1, blur=True, fused=True))
    halved, whole = (
        sum(
            layer.input_elements for layer in layers if layer.stride == 2 and layer.kernel == kernel
        )
        for kernel in (1, 3)
    )
    assert kinds["blur"] == 5 * (stem.output_elements + halved) + 8 * whole


#: Measured by NVIDIA PyTorch examples (A100 in 21.03; V100), timm with PyTorch 1.12 (RTX 3090), and
#: benchmarks/gpu_session: our loop with kernels, and the hand-written loop.
@pytest.mark.parametrize(
    ("name", "image_size", "blur", "fused", "images_per_second"),
    parse_values(
        """
A100 80GB | 224 | false | false | 2470
RTX 3090 | 224 | false | false | 1218
V100 | 224 | false | false | 1200
H200 | 224 | false | true | 6952
H200 | 176 | false | true | 10338
H200 | 88 | false | true | 28751
H200 | 224 | true | true | 5904
H200 | 176 | true | true | 8794
H200 | 88 | true | true | 26529
H200 | 224 | false | false | 4714
H200 | 176 | false | false | 7085
H200 | 224 | true | false | 4085
H200 | 176 | true | false | 6126
"""
    ),
)
def test_predicted_speed_is_within_10_percent_of_measured(
    name, image_size, blur, fused, images_per_second
):
    gpu = next(gpu for gpu in DATASHEETS if gpu.name == name)
    work = Work("resnet50", image_size, 256, blur, fused)
    seconds = 1 / predict_speed(gpu, work).images_per_second
    if fused:  # measured before the fused pool existed
        torchs = count_traffic(work._replace(fused=False))["pool"] / POOL_BYTES_PER_SECOND
        seconds += torchs - count_traffic(work)["pool"] / (FUSED_BANDWIDTH_FRACTION * gpu.traffic)
    assert 1 / seconds == pytest.approx(images_per_second, rel=0.1)


def test_launch_bound_speed_matches_measured_loops():
    gpu = next(gpu for gpu in DATASHEETS if gpu.name == "H200")
    speeds = [predict_speed(gpu, Work("resnet50", 88, 256, blur)) for blur in (False, True)]
    assert {speed.limit for speed in speeds} == {"kernel launches"}
    assert all(12565 < speed.images_per_second < 15466 for speed in speeds)  # without and with blur


#: MXNet by NVIDIA at 224 px without blur: images per second and GPU; and megabytes per image with
#: its fusions. They fuse statistics into convolutions and, in version 4.0, also later operations.
MLPERF = {
    "A100 80GB": (3396, 322.2),
    "H100": (7156, 265.0),
    "H100 PCIe": (4528, 265.0),
    "L40S": (2020, 265.0),
}


@pytest.mark.parametrize("name", MLPERF)
def test_convolution_speed_matches_mlperf_logs(name):
    gpu = next(gpu for gpu in DATASHEETS if gpu.name == name)
    work = Work("resnet50", 224, 400, fused=True)
    images_per_second, megabytes = MLPERF[name]
    saved = (sum(count_traffic(work).values()) - 1e6 * megabytes) / (
        FUSED_BANDWIDTH_FRACTION * gpu.traffic
    )
    expected = 1 / (1 / predict_speed(gpu, work).images_per_second - saved)
    assert expected == pytest.approx(images_per_second, rel=0.05)


def test_predicted_speed_names_its_limit():
    gpus = {gpu.name: gpu for gpu in DATASHEETS}
    work = Work("resnet50", 224, 256)
    slow = replace(gpus["A100 80GB"], teraflops=20)
    assert predict_speed(gpus["A100 80GB"], work).limit == "memory traffic"
    assert predict_speed(gpus["H200"], Work("resnet18", 64, 8)).limit == "kernel launches"
    assert predict_speed(slow, work).limit == "compute"


def test_predictions_page_lists_every_gpu():
    page = (Path(__file__).parents[2] / "docs/lab/predictions.md").read_text()
    for gpu in DATASHEETS:
        rows = [
            predict_speed(gpu, Work("resnet50", image_size, 256, True, fused))
            for image_size, fused in (
                (224, False),
                (224, True),
                (176, True),
                (128, True),
                (88, True),
            )
        ]
        cells = [
            f"{round(one.images_per_second, -1):,.0f}" + " *" * (one.limit == "kernel launches")
            for one in rows
        ]
        row = [gpu.name, f"{gpu.teraflops:g}", f"{gpu.terabytes:g}", *cells]
        assert f"| {' | '.join(row)} |" in page


@pytest.mark.parametrize(
    ("driver", "name"),
    parse_rows(
        """
NVIDIA A100-SXM4-80GB | A100 80GB
A100-SXM4-40GB | A100 40GB
NVIDIA A100 80GB PCIe | A100 80GB
Tesla V100-SXM2-16GB | V100
Tesla T4 | T4
NVIDIA H100 80GB HBM3 | H100
NVIDIA H200 | H200
NVIDIA B200 | B200
NVIDIA L4 | L4
NVIDIA GeForce RTX 4090 | RTX 4090
NVIDIA L40S | L40S
NVIDIA GeForce RTX 4090 Laptop GPU |
NVIDIA A100-SXM4-40GB MIG 1g.5gb |
 |
"""
    ),
)
def test_find_gpu_matches_names_of_drivers_exactly(driver, name):
    gpu = find_datasheet(driver)
    assert (gpu.name if gpu else "") == name


def test_count_memory_covers_activations_and_weight_copies():
    work = Work("resnet50", 176, 256)
    one = count_memory(work, 256, 25_557_032, 3)
    assert 8e9 < one < 12e9
    assert count_memory(work, 256, 25_557_032, 4) - one == pytest.approx(1.2 * 4 * 25_557_032)
    half = count_memory(Work("resnet50", 176, 128), 256, 25_557_032, 3)
    assert 0.5 < half / one < 0.7


@pytest.mark.parametrize(("fused", "pixel_bytes"), [(False, 1 + 4), (True, 1 + 4 + 4)])
def test_count_memory_covers_pixels_of_complete_step(fused, pixel_bytes):
    """Pixels are uint8 and float32; a CUDA graph has another float32 copy."""
    work = Work("resnet50", 176, 256, fused=fused)
    more = count_memory(work, 512, 1000, 3) - count_memory(work, 256, 1000, 3)
    assert more == pytest.approx(1.2 * 256 * 3 * 176**2 * pixel_bytes)
