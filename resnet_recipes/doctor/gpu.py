"""Check which GPUs this machine has, and whether torch computes correctly on them."""

import re
import time
from collections.abc import Iterator

import torch
import torch.nn.functional as F

from resnet_recipes import ops
from resnet_recipes.base.errors import Command, Hint
from resnet_recipes.base.text import format_bytes, get_first_line
from resnet_recipes.cuda import DRIVER, is_usable
from resnet_recipes.doctor import Finding, rates
from resnet_recipes.doctor.unused_gpu import find_untested_machine, find_unused_gpu
from resnet_recipes.planning.roofline import find_datasheet
from resnet_recipes.run_folder.ending import make_ending

_MIN_MEMORY_BYTES = 10e9  # bytes for a micro-batch of 256 images at 176 px in bfloat16
_MIN_SPEED_FRACTION = 0.75  # fraction of the datasheet's speed below which a GPU is called slow
_HARDWARE = Hint(
    "nvidia-smi -q -d ECC,ROW_REMAPPER  and  dmesg | grep -i xid  show whether the GPU "
    "itself is broken"
)


def check_gpu() -> list[Finding]:
    """Check installed packages, and the results and speed of each GPU."""
    return [*check_packages(), *check_devices()]


def check_packages() -> Iterator[Finding]:
    """Import the compiled part of torchvision, which fails if it was built for another torch."""
    try:
        import torchvision

        torchvision.ops.nms(torch.zeros(1, 4), torch.zeros(1), 0.5)
    except (ImportError, OSError, RuntimeError, AttributeError) as error:
        what = f"torchvision does not match torch {torch.__version__} ({get_first_line(error)})"
        command = Command("pip install --upgrade torch torchvision")
        yield Finding("fix", what, (command, Hint("install both from the same index")))
        return
    yield Finding(
        "ok", f"torch {torch.__version__} and torchvision {torchvision.__version__} are compatible"
    )


def check_devices() -> Iterator[Finding]:
    """Describe each GPU and check its results and speed, or report why torch cannot use a GPU."""
    yield from filter(None, [find_untested_machine()])
    if not is_usable():
        none = "this machine has no GPU that torch can use: runs use the CPU"
        yield find_unused_gpu() or Finding("ok", none)
        return
    yield Finding("ok", _describe_versions())
    devices = [torch.device("cuda", index) for index in range(torch.cuda.device_count())]
    for index, device in enumerate(devices):
        facts = torch.cuda.get_device_properties(index)
        dtype, precision = torch.bfloat16, "bfloat16"
        if facts.major < 8:
            dtype, precision = torch.float16, "float16 with loss scaling (it has no bfloat16)"
        name = f"{facts.name}, {format_bytes(facts.total_memory)}"
        yield Finding("ok", f"GPU {index}: {name}; precision=auto means {precision}")
        if facts.total_memory < _MIN_MEMORY_BYTES:
            fix = "batch.bn_size=64", Hint("this changes BatchNorm slightly")
            yield Finding(
                "warn", f"GPU {index} may have too little memory for batch.bn_size=256", fix
            )
        yield check_convolution(device, dtype)
        yield check_operations(device, dtype)
        yield from check_speed(device, dtype, facts.name)
    if len(devices) > 1:
        yield check_all_reduce(devices)


def _describe_versions() -> str:
    driver = re.search(r"\d+\.\d+(\.\d+)?", DRIVER.read_text()) if DRIVER.exists() else None
    nccl = torch.cuda.nccl.version() if torch.distributed.is_nccl_available() else ()
    versions = {
        "driver": driver[0] if driver else "",
        "CUDA": torch.version.cuda,
        "cuDNN": torch.backends.cudnn.version(),
        "NCCL": ".".join(map(str, nccl)),
    }
    return ", ".join(f"{name} {version or 'unknown'}" for name, version in versions.items())


def check_convolution(device: torch.device, dtype: torch.dtype) -> Finding:
    """Compare a convolution of small integers, exact in every dtype, with the CPU."""
    name = f"GPU {device.index}"
    rng = torch.Generator().manual_seed(0)
    images = torch.randint(-3, 4, (8, 16, 32, 32), generator=rng).float()
    weights = torch.randint(-1, 2, (32, 16, 3, 3), generator=rng).float()
    expected = F.conv2d(images, weights)
    try:
        moved = images.to(device, dtype, memory_format=torch.channels_last)
        error = (
            (F.conv2d(moved, weights.to(device, dtype)).cpu().float() - expected).abs().max().item()
        )
    except RuntimeError as failure:
        why = get_first_line(failure)
        fix = Hint(make_ending(failure).hint or _HARDWARE)
        return Finding("fix", f"{name} cannot compute a convolution: {why}", fix)
    if not error < 0.5:
        what = f"{name} computes a convolution of integers wrongly: the error is {error:g}"
        return Finding("fix", what, _HARDWARE)
    return Finding(
        "ok", f"{name}: a convolution in {str(dtype).removeprefix('torch.')} gives the CPU's result"
    )


def check_operations(device: torch.device, dtype: torch.dtype) -> Finding:
    """Compare the fused operations with plain torch, on the GPU and on the CPU."""
    if notes := ops.compare(device, dtype, device).notes:
        fix = Hint("runs use the torch operations instead, which are correct but slower")
        return Finding("warn", f"GPU {device.index}: {'; '.join(notes)}", fix)
    if notes := ops.compare(device, dtype, torch.device("cpu")).notes:
        return Finding(
            "fix", f"GPU {device.index} and the CPU disagree: {'; '.join(notes)}", _HARDWARE
        )
    return Finding(
        "ok",
        f"GPU {device.index}: the fused operations give the same results as torch on GPU and CPU",
    )


def check_speed(device: torch.device, dtype: torch.dtype, name: str) -> Iterator[Finding]:
    """Compare memory bandwidth and matrix products with the GPU's datasheet."""
    gpu = find_datasheet(name)
    if gpu is None:
        yield Finding(
            "ok", f"GPU {device.index}: no datasheet for {name}, so its speed was not checked"
        )
        return
    try:
        traffic = rates.measure_traffic(device)
        flops = rates.measure_products(device, dtype)
    except RuntimeError as failure:
        yield Finding(
            "warn",
            f"GPU {device.index}: its speed could not be measured: {get_first_line(failure)}",
            (Command("nvidia-smi"), Hint("this shows what else uses its memory")),
        )
        return
    for what, speed, expected, unit in (
        ("moves data", traffic, gpu.traffic, "TB/s"),
        ("multiplies matrices", flops, gpu.flops, "TFLOP/s"),
    ):
        result = (
            f"GPU {device.index} {what} at {speed / 1e12:.3g} {unit}; {gpu.name} should reach "
            f"{expected / 1e12:.3g}"
        )
        command = Command("nvidia-smi -q -d PERFORMANCE,POWER,CLOCK")
        fix = command, Hint("this shows heat, power and clocks; nvidia-smi shows other programs")
        if speed < _MIN_SPEED_FRACTION * expected:
            yield Finding("warn", f"{result}: slow or throttled", fix)
        else:
            yield Finding("ok", result)


def check_all_reduce(devices: list[torch.device]) -> Finding:
    """Check the result and the speed of an NCCL all-reduce over all GPUs."""
    size = 25_600_000  # values: the gradients of a ResNet-50
    why = "this shows why; nvidia-smi topo -m shows how the GPUs are connected"
    fix = Command("NCCL_DEBUG=INFO resnet-recipes doctor gpu"), Hint(why)
    try:
        tensors = [
            torch.full((size,), float(index + 1), device=device)
            for index, device in enumerate(devices)
        ]
        reduce_all(tensors)
        expected = len(devices) * (len(devices) + 1) / 2
        if not all(bool((tensor == expected).all()) for tensor in tensors):
            return Finding("fix", "NCCL computes wrong sums over the GPUs", fix)
        start = time.perf_counter()
        reduce_all(tensors)
        seconds = time.perf_counter() - start
    except RuntimeError as failure:
        return Finding("fix", f"NCCL cannot sum over the GPUs: {get_first_line(failure)}", fix)
    rate = 2 * (len(devices) - 1) / len(devices) * 4 * size / seconds / 1e9
    return Finding(
        "ok",
        f"NCCL sums over {len(devices)} GPUs at {rate:.3g} GB/s: {1e3 * seconds:.3g} ms for "
        "ResNet-50's gradients",
    )


def reduce_all(tensors: list[torch.Tensor]) -> None:
    """Replace each tensor by the sum of all, in one process, and wait."""
    torch.cuda.nccl.all_reduce(tensors)
    for tensor in tensors:
        rates.wait_for_device(tensor.device)
