"""The machine that the numbers belong to."""

import shutil
import sys
import time
from collections.abc import Iterator

import torch

from resnet_recipes.base.cores import cores


def rows(device: torch.device, quick: bool) -> Iterator[dict]:
    """Yield versions, the GPU, and what is missing on this machine."""
    on_gpu = device.type == "cuda"
    facts = {
        "device": torch.cuda.get_device_name(device) if on_gpu else "CPU",
        "cores": cores(),
        "python": sys.version.split()[0],
        "torch": torch.__version__,
        "cuda": torch.version.cuda,
        "cudnn": torch.backends.cudnn.version(),
        "when": time.strftime("%Y-%m-%d %H:%M"),
        "quick": quick,
    }
    for name, value in facts.items():
        yield {"case": name, "note": str(value)}
    tools = {"compiler": "cc", "compute-sanitizer": "compute-sanitizer"}
    for name, command in tools.items():
        yield {"case": name, "note": shutil.which(command) or "not installed"}
