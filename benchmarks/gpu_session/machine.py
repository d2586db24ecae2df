"""The machine that the numbers belong to, and missing packages."""

import shutil
import sys
import time
from collections.abc import Iterator
from importlib import import_module

import torch

from resnet_recipes.base.cores import count_cores
from resnet_recipes.data import native
from resnet_recipes.ops import selftest

PACKAGES = "hydra", "omegaconf", "safetensors", "rich", "torchvision", "timm"


def measure_rows(device: torch.device, quick: bool) -> Iterator[dict]:
    """Yield versions, the GPU, and a fault for anything that would leave a part empty."""
    on_gpu = device.type == "cuda"
    facts = {
        "device": torch.cuda.get_device_name(device) if on_gpu else "CPU",
        "cores": count_cores(),
        "python": sys.version.split()[0],
        "torch": torch.__version__,
        "cuda": torch.version.cuda,
        "cudnn": torch.backends.cudnn.version(),
        "compute-sanitizer": shutil.which("compute-sanitizer") or "not installed",
        "when": time.strftime("%Y-%m-%d %H:%M"),
        "quick": quick,
    }
    for name, value in facts.items():
        yield {"case": name, "note": str(value)}
    explanations = {name: _explain_failure(name) for name in PACKAGES}
    explanations |= {
        "compiler": selftest.find_missing_package(),
        "decoder": native.find_decoder_fault(),
    }
    for name, missing in explanations.items():
        yield {"case": name} | ({"fault": missing} if missing else {"note": "installed"})


def _explain_failure(package: str) -> str:
    """Return why a package cannot be imported, or ""."""
    try:
        import_module(package)
    except ImportError as error:
        return str(error)
    return ""
