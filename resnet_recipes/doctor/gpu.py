"""What the GPUs of this machine are, and whether torch can use them."""

import shutil
from collections.abc import Iterator

import torch

from resnet_recipes.doctor import Finding

_SMALLEST = 10         # GB; the recipes' micro-batch of 256 images at 176 px in bfloat16 takes about this


def check_gpu() -> list[Finding]:
    """Describe every device, and compare torch, torchvision and the driver."""
    return [*_packages(), *_devices()]


def _packages() -> Iterator[Finding]:
    """Import torchvision's compiled part, which fails where it was built for another torch."""
    try:
        import torchvision

        torchvision.ops.nms(torch.zeros(1, 4), torch.zeros(1), 0.5)
    except (ImportError, OSError, RuntimeError, AttributeError) as error:
        what = f"torchvision does not fit torch {torch.__version__} ({str(error).splitlines()[0]})"
        yield Finding("fix", what, "pip install --upgrade torch torchvision    (both from the same place)")
        return
    yield Finding("ok", f"torch {torch.__version__} and torchvision {torchvision.__version__} fit each other")


def _devices() -> Iterator[Finding]:
    if not torch.cuda.is_available():
        if shutil.which("nvidia-smi") and torch.version.cuda is None:
            fix = "pip install --force-reinstall torch torchvision    (from https://pytorch.org, for CUDA)"
            yield Finding("fix", "there is an NVIDIA driver, but this torch was built without CUDA", fix)
        elif shutil.which("nvidia-smi"):
            what = f"there is an NVIDIA driver, but torch (for CUDA {torch.version.cuda}) cannot use it: it may be too old"
            yield Finding("fix", what, "nvidia-smi shows the driver's CUDA version; update it, or install a torch for that version")
        else:
            yield Finding("warn", "there is no CUDA device: runs go to the CPU, good for trying things out")
        return
    for index in range(torch.cuda.device_count()):
        device = torch.cuda.get_device_properties(index)
        memory = device.total_memory / 1e9
        precision = "bfloat16" if device.major >= 8 else "float16 with loss scaling (no bfloat16)"
        yield Finding("ok", f"GPU {index}: {device.name}, {memory:.0f} GB, precision=auto means {precision}")
        if memory < _SMALLEST:
            fix = "batch.bn_size=64, which changes BatchNorm a little"
            yield Finding("warn", f"GPU {index} has little memory for batch.bn_size=256", fix)
