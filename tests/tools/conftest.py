"""The null device, built once for all tests."""

import importlib.util
import shutil
import sys
from pathlib import Path

import pytest
import torch

from tests.tools.null_device import NULL_DEVICE

HEADERS = Path(torch.__file__).parents[1] / "nvidia" / "cu13" / "include" / "cuda_runtime_api.h"


@pytest.fixture(scope="session")
def null_environment(tmp_path_factory):
    """Return the environment of the null device with two devices, as a launcher would set it."""
    if sys.platform != "linux" or not shutil.which("g++"):
        pytest.skip("needs Linux and g++")
    if not torch.version.cuda or not HEADERS.exists():
        pytest.skip("needs a build of torch for CUDA 13")
    if torch.cuda.is_available():
        pytest.skip("this machine has a GPU")
    spec = importlib.util.spec_from_file_location("run", NULL_DEVICE / "run.py")
    run = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(run)
    folder = tmp_path_factory.mktemp("null_device")
    run.build(folder)
    return run.make_environment(folder) | {
        "NULL_DEVICES": "2",
        "PYTORCH_ALLOC_CONF": "expandable_segments:True",
    }
