"""Run the fused operations under NVIDIA compute-sanitizer, if it is installed."""

import shutil
import subprocess
import sys
from collections.abc import Iterator

import torch

CHECK = """
import torch
from resnet_recipes.ops import MODULES, selftest
device = torch.device("cuda", 0)
print(*(selftest.find_mismatch(each, device, torch.bfloat16, device) for each in MODULES.values()))
"""


def measure_rows(device: torch.device, quick: bool, tool: str) -> Iterator[dict]:
    """Yield the number of errors that the tool reports while every fused operation runs once."""
    program = shutil.which("compute-sanitizer")
    if device.type != "cuda" or not program:
        yield {"case": tool, "note": "skipped: compute-sanitizer or a GPU is missing"}
        return
    command = [program, "--tool", tool, "--error-exitcode", "1", sys.executable, "-c", CHECK]
    done = subprocess.run(command, capture_output=True, text=True)
    row = {"case": tool, "value": done.returncode == 0, "unit": "right"}
    yield row if row["value"] else row | {"fault": done.stdout[-2000:]}
