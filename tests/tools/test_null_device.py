"""What a training step asks of a GPU, counted on a device that does nothing: launches, waits, copies, capture."""

import importlib.util
import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import torch

TOOL = Path(__file__).parents[2] / "tools" / "null_device"
HEADERS = Path(torch.__file__).parents[1] / "nvidia" / "cu13" / "include" / "cuda_runtime_api.h"
CAPTURE = """
import torch
from null_device import recorded
ones, host = torch.ones(4, device="cuda"), torch.ones(100_000)
with recorded() as entries:
    float(ones.sum())
    host.to("cuda", non_blocking=True)
    torch.add(ones, 1)
print([entry.split()[0] for entry in entries if not entry.startswith("malloc")])
with recorded() as entries, torch.cuda.graph(torch.cuda.CUDAGraph()):
    torch.add(ones, 1)
    torch.cuda.current_stream().synchronize()
print([entry.split(" _")[0] for entry in entries if entry.startswith("captured") and "malloc" not in entry])
"""

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(sys.platform != "linux" or not shutil.which("g++"), reason="needs Linux and g++"),
    pytest.mark.skipif(not torch.version.cuda or not HEADERS.exists(), reason="needs a build of torch for CUDA 13"),
    pytest.mark.skipif(torch.cuda.is_available(), reason="a GPU is here"),
]


@pytest.fixture(scope="module")
def start(tmp_path_factory):
    """Return a function that runs Python on the null device and returns what it prints, line by line."""
    spec = importlib.util.spec_from_file_location("run", TOOL / "run.py")
    run = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(run)
    folder = tmp_path_factory.mktemp("null_device")
    run.build(folder)

    def started(*arguments):
        command = [sys.executable, *arguments]
        done = subprocess.run(command, env=run.environment(folder), capture_output=True, text=True)
        assert done.returncode == 0, done.stderr[-3000:]
        return done.stdout.splitlines()
    return started


def test_launches_waits_and_pageable_copies_are_told(start):
    plain, captured = start("-c", CAPTURE)
    assert plain == "['launch', 'pin', 'copy', 'wait', 'copy', 'launch']"
    assert captured == "['captured launch', 'captured wait stream']"


#: Launches of a step, copies and fills included, and of a step with SAM.
LIMITS = {"mild": (429, None), "medium": (436, 861), "hot": (685, 1126)}


@pytest.mark.parametrize(
    "recipe", ["mild", *(pytest.param(name, marks=pytest.mark.exhaustive) for name in ("medium", "hot"))],
)
def test_a_step_asks_for_little_and_waits_only_for_an_old_copy(recipe, start):
    found = json.loads(start(str(TOOL / "step.py"), recipe)[0])
    plain, sam = LIMITS[recipe]
    assert found["launches"] <= plain
    assert found.get("sam_launches") is None if sam is None else found["sam_launches"] <= sam
    assert set(found["waits"]) <= {"wait event"}
    assert sum(found["waits"].values()) <= 1
    assert all(int(copy.split()[-1]) <= 65536 for copy in found["copies"])
    assert found["not_captured"] == []
