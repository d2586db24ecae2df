"""Predictions of a GPU's speed come from sums over layers, which published numbers confirm."""

from pathlib import Path

import pytest
import torch
from torchvision import models

from resnet_recipes.measure.datasheet import GPUS, known
from resnet_recipes.measure.roofline import (
    Convolution,
    Speed,
    Work,
    convolutions,
    memory,
    speed,
    traffic,
)


@pytest.mark.parametrize(
    ("model", "side"), [("resnet18", 224), ("resnet50", 224), ("resnet50", 88)]
)
def test_the_convolutions_are_torchvisions(model, side):
    found = []

    def record(module, inputs, output):
        if isinstance(module, torch.nn.Conv2d):
            found.append(
                (
                    module.in_channels,
                    module.out_channels,
                    module.kernel_size[0],
                    module.stride[0],
                    inputs[0].shape[2],
                    output.shape[2],
                )
            )

    with torch.device("meta"):
        network = models.get_model(model)
        for module in network.modules():
            module.register_forward_hook(record)
        network(torch.empty(1, 3, side, side))
    expected = [
        (c.inputs, c.outputs, c.kernel, c.stride, c.side, c.out_side)
        for c in convolutions(model, side)
    ]
    assert sorted(expected) == sorted(found)


@pytest.mark.parametrize(
    ("side", "giga", "plain", "fused"),
    [
        (224, 24.30, 478.7, 388.8),
        (192, 17.86, 353.3, 286.7),
        (176, 15.50, 300.4, 243.6),
        (128, 7.94, 160.3, 129.6),
        (88, 4.14, 82.2, 66.0),
    ],
)
def test_arithmetic_and_traffic_are_those_counted_operation_by_operation(side, giga, plain, fused):
    # without the classifier
    assert Work("resnet50", side, 256).flops / 1e9 == pytest.approx(giga, rel=0.003)
    assert Work("resnet50", side, 256).bytes / 1e6 == pytest.approx(plain, rel=0.01)
    assert Work("resnet50", side, 256, fused=True).bytes / 1e6 == pytest.approx(fused, rel=0.02)


def test_a_batch_norm_reads_and_writes_eight_times():
    stem = next(convolutions("resnet18", 8))
    assert stem == Convolution(3, 64, 7, 2, 8)
    assert (stem.written, stem.flops) == (64 * 4 * 4, 2 * 3 * 49 * 64 * 4 * 4)
    outputs = sum(layer.written for layer in convolutions("resnet18", 8))
    assert traffic(Work("resnet18", 8, 1))["batch norm"] == 2 * 8 * outputs


def test_a_blur_in_a_batch_norm_adds_little_traffic():
    layers, kinds = (
        list(convolutions("resnet50", 64)),
        traffic(Work("resnet50", 64, 1, blur=True, fused=True)),
    )
    stem, halved, whole = (
        layers[0].written,
        *(
            sum(layer.read for layer in layers[1:] if layer.stride == 2 and layer.kernel == kernel)
            for kernel in (1, 3)
        ),
    )
    assert (kinds["pool"], kinds["blur"]) == (0, 2 * (stem + halved + 4 * whole) / 2)
    plain = traffic(Work("resnet50", 64, 1, fused=True))
    assert plain["gradients of sums"] - kinds["gradients of sums"] == 2 * halved


@pytest.mark.parametrize(
    ("name", "blur", "fused", "images_per_second"),
    [
        ("A100 80GB", False, False, 2470),  # measured: NVIDIA's PyTorch examples, 21.03
        ("RTX 3090", False, False, 1218),  # measured: timm, PyTorch 1.12
        ("V100", False, False, 1200),  # measured: NVIDIA's PyTorch examples
        ("H200", True, False, 2910),  # by counting instructions of the averages that blur
        ("A100 80GB", True, False, 1600),
    ],
)
def test_speeds_are_within_a_tenth_of_what_was_measured_or_counted(
    name, blur, fused, images_per_second
):
    gpu = next(gpu for gpu in GPUS if gpu.name == name)
    assert speed(gpu, Work("resnet50", 224, 256, blur, fused)).images_per_second == pytest.approx(
        images_per_second, rel=0.1
    )


def test_what_limits_a_step_is_named():
    gpus = {gpu.name: gpu for gpu in GPUS}
    assert speed(gpus["A100 80GB"], Work("resnet50", 224, 256)).limit == "memory traffic"
    assert speed(gpus["H200"], Work("resnet18", 64, 8)).limit == "kernel launches"
    slow = gpus["A100 80GB"]._replace(teraflops=20)
    assert speed(slow, Work("resnet50", 224, 256)).limit == "arithmetic"


def test_fusion_and_smaller_images_are_always_faster():
    for gpu in GPUS:
        rates = [
            speed(gpu, Work("resnet50", side, 2048, True, fused))
            for fused in (False, True)
            for side in (224, 176, 128, 88)
        ]
        assert all(isinstance(rate, Speed) for rate in rates)
        assert all(
            a.images_per_second < b.images_per_second
            for a, b in zip(rates[:4], rates[4:], strict=True)
        )
        assert rates[:4] == sorted(rates[:4], key=lambda rate: rate.images_per_second)


def test_the_page_has_the_predictions_of_every_gpu():
    page = (Path(__file__).parents[2] / "docs" / "performance.md").read_text()
    for gpu in GPUS:
        found = [
            speed(gpu, Work("resnet50", side, 256, True, fused))
            for side, fused in ((224, False), (224, True), (176, True), (128, True), (88, True))
        ]
        cells = [
            f"{round(one.images_per_second, -1):,.0f}" + " *" * (one.limit == "kernel launches")
            for one in found
        ]
        row = [gpu.name, f"{gpu.teraflops:g}", f"{gpu.terabytes:g}", *cells]
        assert f"| {' | '.join(row)} |" in page


@pytest.mark.parametrize(
    ("driver", "name"),
    [
        ("NVIDIA A100-SXM4-80GB", "A100 80GB"),
        ("A100-SXM4-40GB", "A100 40GB"),
        ("NVIDIA A100 80GB PCIe", "A100 80GB"),
        ("Tesla V100-SXM2-16GB", "V100"),
        ("Tesla T4", "T4"),
        ("NVIDIA H100 80GB HBM3", "H100"),
        ("NVIDIA H200", "H200"),
        ("NVIDIA B200", "B200"),
        ("NVIDIA L4", "L4"),
        ("NVIDIA GeForce RTX 4090", "RTX 4090"),
        ("NVIDIA L40S", None),
        ("NVIDIA GeForce RTX 4090 Laptop GPU", None),
        ("NVIDIA A100-SXM4-40GB MIG 1g.5gb", None),
        ("", None),
    ],
)
def test_gpus_are_known_by_the_drivers_names_and_lookalikes_are_not(driver, name):
    found = known(driver)
    assert (found and found.name) == name


def test_memory_holds_activations_of_a_micro_batch_and_copies_of_the_weights():
    work = Work("resnet50", 176, 256)
    one = memory(work, 256, 25_557_032, 3)
    assert 8e9 < one < 12e9
    assert memory(work, 256, 25_557_032, 4) - one == 4 * 25_557_032
    half = memory(Work("resnet50", 176, 128), 256, 25_557_032, 3)
    assert 0.5 < half / one < 0.7
