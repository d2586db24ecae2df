"""The machine that the numbers belong to, and what it lacks."""

import shutil
import sys
import time
from collections.abc import Iterator
from importlib.util import find_spec

import torch

from resnet_recipes.base.cores import cores
from resnet_recipes.data.native import library
from resnet_recipes.ops import toolchain

PACKAGES = "hydra", "omegaconf", "yaml", "safetensors", "rich", "torchvision", "timm"


def rows(device: torch.device, quick: bool) -> Iterator[dict]:
    """Yield versions, the GPU, and a fault for whatever would leave a part empty."""
    on_gpu = device.type == "cuda"
    facts = {
        "device": torch.cuda.get_device_name(device) if on_gpu else "CPU",
        "cores": cores(),
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
    lacks = [name for name in PACKAGES if not find_spec(name)]
    for name, missing in (
        ("packages", ", ".join(lacks)),
        ("compiler", toolchain.missing()),
        ("decoder", library.why_not()),
    ):
        yield {"case": name} | ({"fault": f"missing: {missing}"} if missing else {"note": "there"})
