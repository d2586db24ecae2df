"""The kernels in the Triton interpreter, without a GPU, against float64."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

FOLDER = Path(__file__).parent / "interpreted"

pytest.importorskip("triton")


@pytest.mark.slow
@pytest.mark.timeout(400)  # 20 s of CPU time
def test_interpreted_kernels_match_float64():
    command = [
        sys.executable,
        "-m",
        "pytest",
        "-q",
        "-p",
        "no:cacheprovider",
        f"--confcutdir={FOLDER}",
        str(FOLDER),
    ]
    done = subprocess.run(
        command, env=os.environ | {"TRITON_INTERPRET": "1"}, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stdout[-4000:]
